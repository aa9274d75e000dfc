"""PyTorch: build, measure and train what a spec says."""

from normula.torch import sources
from normula.torch.build import BUILDERS, build
from normula.torch.capture import capture, values
from normula.torch.context import Cache
from normula.torch.language import one_step_update, start
from normula.torch.model import Model, States
from normula.torch.passes import passes
from normula.torch.popular import popular
from normula.torch.readflow import open_capture, stream_flow
from normula.torch.train import train
from normula.torch.weights import load, save

__all__ = [
    "BUILDERS",
    "Cache",
    "Model",
    "States",
    "build",
    "capture",
    "load",
    "one_step_update",
    "open_capture",
    "passes",
    "popular",
    "save",
    "sources",
    "start",
    "stream_flow",
    "train",
    "values",
]
