"""The words of the notation, each with what it means."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

STREAM: Final = "x"
STEP: Final = "f"

SUBLAYERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "f": "the sublayer",
        "attn": "attention",
        "cross": "cross-attention",
        "mlp": "the MLP",
        "moe": "the mixture of experts",
        "ssm": "the state-space mixer",
        "conv": "the convolution",
        "pool": "the pooling",
        "fourier": "the Fourier mixer",
    }
)
"""Sublayers: `f` is each sublayer of the layer in turn, the others are one each."""

NORMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "norm": "the norm",
        "layernorm": "LayerNorm",
        "rmsnorm": "RMSNorm",
        "l2norm": "the L2 norm",
        "dyt": "dynamic tanh",
        "derf": "dynamic erf",
    }
)
"""Normalisations over the features of one token; `norm` is whichever kind the stack uses."""

FUNCTIONS: Final = ("sqrt", "log", "silu", "sigmoid", "ramp")
"""Functions of a number, a symbol or a gain; `ramp` is the value, not below 0 and not above 1."""

OTHERS: Final = ("gain", "stop")

SYMBOLS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "l": "number of this layer, from 1",
        "L": "layers in all",
        "s": "number of this sublayer, from 1",
        "S": "sublayers in all",
        "Ld": "decoder layers in all",
        "Le": "encoder layers in all",
        "step": "training steps made so far, from 0",
    }
)
"""Depth symbols: positive whole numbers that are known when a model is built; and `step`, which grows in training."""

CONSTANTS: Final = ("a", "b")
"""Names that, never assigned, are fixed numbers whose value is not stated, not streams."""

INNER: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "f": ("qk", "qkv", "out", "mid"),
        "attn": ("qk", "qkv", "out"),
        "cross": ("qk", "qkv", "out"),
        "mlp": ("mid",),
    }
)
"""Sites inside a sublayer that may hold a norm: `attn(e, qk=norm)`."""

CALLABLE: Final = (*SUBLAYERS, *NORMS, *FUNCTIONS, *OTHERS)
RESERVED: Final = frozenset((*CALLABLE, *SYMBOLS))

NAME: Final = re.compile(r"[a-z][a-z0-9_]*\Z")
"""What a value or a stream may be called."""
