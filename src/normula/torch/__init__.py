"""PyTorch: build, measure and train what a spec says."""

from normula.torch import conversions, guarded, hooks, rewire, sources, variants
from normula.torch.build import BUILDERS, build
from normula.torch.capture import capture, not_finite, values
from normula.torch.context import Cache
from normula.torch.device import device, gpus
from normula.torch.language import one_step_update, start
from normula.torch.model import Model, States
from normula.torch.observed import observed, open_capture
from normula.torch.passes import passes
from normula.torch.popular import popular
from normula.torch.train import train
from normula.torch.training import decays, reached
from normula.torch.weights import load, save

__all__ = [
    "BUILDERS",
    "Cache",
    "Model",
    "States",
    "build",
    "capture",
    "conversions",
    "decays",
    "device",
    "gpus",
    "guarded",
    "hooks",
    "load",
    "not_finite",
    "observed",
    "one_step_update",
    "open_capture",
    "passes",
    "popular",
    "reached",
    "rewire",
    "save",
    "sources",
    "start",
    "train",
    "values",
    "variants",
]
