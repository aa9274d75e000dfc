"""PyTorch: build, measure and train what a spec says."""

from normula.torch.build import Model, build
from normula.torch.passes import passes
from normula.torch.popular import popular
from normula.torch.train import train

__all__ = ["Model", "build", "passes", "popular", "train"]
