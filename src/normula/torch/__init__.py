"""PyTorch: build, measure and train what a spec says."""

from normula.torch.build import BUILDERS, build
from normula.torch.context import Cache
from normula.torch.language import Start, one_step_update, start
from normula.torch.model import Model, States
from normula.torch.passes import passes
from normula.torch.popular import popular
from normula.torch.train import train

__all__ = [
    "BUILDERS",
    "Cache",
    "Model",
    "Start",
    "States",
    "build",
    "one_step_update",
    "passes",
    "popular",
    "start",
    "train",
]
