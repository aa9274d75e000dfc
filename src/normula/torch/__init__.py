"""PyTorch: build, measure and train what a spec says."""

from normula.torch.build import Model, build

__all__ = ["Model", "build"]
