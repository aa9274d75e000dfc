"""JAX and Flax: build, measure and train what a spec says; a functional core, with skins for Linen and NNX."""

from normula.flax import guarded, linen, nnx, rewire
from normula.flax.build import BUILDERS, build
from normula.flax.capture import capture, not_finite, values
from normula.flax.core import States, apply, init, states
from normula.flax.device import device, gpus
from normula.flax.difference import Difference, difference
from normula.flax.language import one_step_update, start
from normula.flax.network import Network, network
from normula.flax.observed import observed, open_capture
from normula.flax.passes import Model, passes
from normula.flax.popular import popular
from normula.flax.sharding import shardings
from normula.flax.train import train
from normula.flax.tree import to_arrays, to_tree
from normula.flax.weights import load, save

__all__ = [
    "BUILDERS",
    "Difference",
    "Model",
    "Network",
    "States",
    "apply",
    "build",
    "capture",
    "device",
    "difference",
    "gpus",
    "guarded",
    "init",
    "linen",
    "load",
    "network",
    "nnx",
    "not_finite",
    "observed",
    "one_step_update",
    "open_capture",
    "passes",
    "popular",
    "rewire",
    "save",
    "shardings",
    "start",
    "states",
    "to_arrays",
    "to_tree",
    "train",
    "values",
]
