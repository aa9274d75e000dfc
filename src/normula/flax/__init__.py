"""JAX and Flax: build, measure and train what a spec says; a functional core, with skins for Linen and NNX."""

from normula.flax import linen, nnx
from normula.flax.build import BUILDERS, build
from normula.flax.core import States, apply, init, states
from normula.flax.difference import Difference, difference
from normula.flax.network import Network, network
from normula.flax.tree import to_arrays, to_tree

__all__ = [
    "BUILDERS",
    "Difference",
    "Network",
    "States",
    "apply",
    "build",
    "difference",
    "init",
    "linen",
    "network",
    "nnx",
    "states",
    "to_arrays",
    "to_tree",
]
