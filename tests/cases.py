"""Cases that many tests share: formulas, placements, small specs, weights and inputs."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from normula.catalog import entries, placement
from normula.formula import Placement, Range
from normula.oracle import weights
from normula.oracle.norms import Array
from normula.spec import Spec, plan
from normula.spec.kinds import NORM_KINDS

NAMES = tuple(entry.name for entry in entries())

BLOCKS = (
    "x = x + norm(attn(norm(x))); x = x + norm(mlp(norm(x)))",
    "x = x + norm(attn(norm(x))); x = x + norm(moe(norm(x)))",
    "x = x + attn(norm(x)); x = x + mlp(norm(x))",
    "x = x + ssm(norm(x)); x = x + mlp(norm(x))",
    "n = norm(x); x = n + attn(n); m = norm(x); x = m + mlp(m)",
    "n = norm(x); x = x + attn(n) + mlp(n)",
    "x = x + attn(norm(x)); x = x + moe(norm(x))",
    "x = gain * x + attn(norm(x)); x = gain * x + mlp(norm(x))",
    "x = gain * x + attn(norm(x)); x = gain * x + moe(norm(x))",
    "x = x + norm(attn(x)); x = x + norm(mlp(x))",
    "x = x + norm(attn(x)); x = x + norm(moe(x))",
    "x = x + attn(norm(x)); x = x + cross(norm(x)); x = x + mlp(norm(x))",
    "x = x + attn(norm(x)) + mlp(norm(x))",
    "x = x + conv(norm(x)); x = x + mlp(norm(x))",
    "x = x + attn(norm(x)); n = norm(x); m = moe(n); x = x + mlp(n); x = x + attn(norm(x)); x = x + mlp(norm(x)) + m",
    "x = x + ssm(norm(x))",
    "n = norm(x); x = n + attn(n); m = norm(x); x = m + moe(m)",
    "n = norm(x); x = a * n + attn(n); m = norm(x); x = a * m + moe(m)",
    "x = x + attn(x); x = x + mlp(norm(x))",
    "x = x + moe(norm(x))",
    "x = x + attn(norm(x))",
    "x = x + mlp(norm(x))",
    "x = norm(x + attn(x)); x = norm(x + mlp(x))",
    "x = x + ssm(norm(x)); x = x + moe(norm(x))",
    "x = x + ssm(norm(x)); x = x + mlp(norm(x)); x = 0.5 * x",
    "t = mlp(norm(attn(norm(x)))); x = x + ssm(norm(x + t))",
    "x = norm(x + attn(x)); x = norm(x + cross(x)); x = norm(x + mlp(x))",
    "x = norm(x + fourier(x)); x = norm(x + mlp(x))",
    "x = norm(x + attn(x)); x = norm(x + mlp(x)); x = conv(x)",
    "x = norm(x + attn(x)); x = x - pool(x); x = x + mlp(x); x = norm(x - pool(x)); x = x - pool(x)",
    "x = x + attn(x); x = norm(x - pool(x)); x = x + cross(x); x = norm(x - pool(x)); x = x + mlp(x);"
    " x = norm(x - pool(x)); x = x - pool(x)",
    "x = norm(x + cross(x)); x = norm(x + attn(x)); x = norm(x + mlp(x))",
    "h = gain * mlp(x); h = gain * (h + attn(gain * mlp(x))); h = gain * (h + mlp(h)); h = gain * (h + mlp(h));"
    " h = gain * (h + mlp(h)); h = gain * (h + mlp(h)); x = gain * (x + mlp(h))",
    "h = norm(mlp(x)); h = norm(h + attn(norm(mlp(x)))); h = norm(h + mlp(h)); h = norm(h + mlp(h));"
    " h = norm(h + mlp(h)); h = norm(h + mlp(h)); x = norm(x + mlp(h))",
    "x = norm(x + attn(x)); x = norm(x + mlp(x)); x = norm(x + mlp(x))",
    "x = x + attn(norm(x)); x = x + cross(norm(x)); x = x + moe(norm(x))",
    "x = norm(x + attn(x)); x = x + mlp(x); x = norm(x + mlp(norm(x)))",
    "x = norm(x + attn(x)); x = x + mlp(x); x = norm(x + mlp(x))",
    "x = x + attn(norm(x)); x = x + mlp(norm(x)); n = norm(x); x = n + mlp(n)",
    "x = x + attn(norm(x)); x = x + mlp(norm(x)); x = x + mlp(norm(x))",
    "x = x + attn(norm(x)); x = x + mlp(norm(x)); x = x + mlp(x)",
    "x = x + gain * attn(norm(x)); x = x + gain * mlp(norm(x))",
    "x = norm(x + attn(x)); x = norm(x + cross(x)); x = norm(x + mlp(x)); x = norm(x)",
    "x = x + gain * norm(conv(x)); x = x + gain * norm(mlp(x))",
    "x = x + attn(x); x = x + mlp(x)",
    "x = attn(x); x = x + mlp(x)",
    "x = x + gain * pool(norm(x)); x = x + gain * mlp(norm(x))",
    "x = x + pool(norm(x)); x = x + mlp(norm(x))",
    "x = x + gain * conv(x)",
    "x = x + gain * conv(x); x = x + gain * attn(x); x = x + gain * mlp(x)",
    "x = x + attn(norm(x)); x = x + attn(norm(x)); x = x + mlp(norm(x))",
    "x = x + 0.5 * mlp(norm(x)); x = x + attn(norm(x)); x = x + conv(norm(x)); x = x + 0.5 * mlp(norm(x)); x = norm(x)",
    "r = conv(norm(x)); x = r + attn(conv(norm(x))); x = x + mlp(norm(x))",
    "x = norm(attn(x)); x = norm(x + cross(x)); x = norm(x + mlp(x)); y = norm(y + cross(y))",
    "x = norm(x + attn(x)); x = norm(x + cross(x)); x = norm(x + mlp(x)); y = norm(y + cross(y))",
    "x = norm(x + cross(x))",
    "x = x + conv(x)",
    "x = conv(x)",
    "x = x + gain * attn(norm(x)) + gain * attn(norm(x)); x = x + gain * mlp(norm(x)) + gain * mlp(norm(x))",
    "n = norm(x); x = x + gain * (attn(n) + mlp(n))",
    "x = x + gain * attn(norm(x)); x = x + mlp(norm(x))",
    "x = x + gain * attn(norm(x)); x = x + gain * conv(norm(x)); x = x + gain * mlp(norm(x))",
    "x = x + gain * attn(norm(x)); n = norm(x); x = n + gain * mlp(n)",
    "x = x + gain * norm(x); x = 2 * norm(x)",
    "x = x + gain * norm(x); x = 2 * x",
    "x = x + conv(x); x = x + attn(norm(x)); x = x + mlp(norm(x))",
    "x = x + conv(x); x = x + attn(norm(x)) + attn(norm(y)) + attn(norm(z)); x = x + mlp(norm(x))",
    "x = mlp(norm(x)); x = x + cross(norm(x)); x = mlp(norm(x))",
    "x = pool(x) + gain * mlp(norm(conv(x))); x = x + gain * attn(norm(x)); x = x + gain * mlp(norm(x));"
    " x = x + gain * attn(norm(x)); x = x + gain * mlp(norm(x))",
    "x = x + gain * mlp(norm(conv(x))); x = x + gain * attn(norm(x)); x = x + gain * mlp(norm(x));"
    " x = x + gain * attn(norm(x)); x = x + gain * mlp(norm(x))",
    "x = gain * x + conv(norm(x)); x = gain * x + mlp(norm(x))",
    "x = x + mlp(norm(x)); x = x + mlp(norm(x))",
    "x = x + gain * mlp(norm(conv(x)))",
    "u = conv(x); u = u + gain * attn(norm(u)); x = x + gain * mlp(norm(u))",
    "u = conv(x); x = u + gain * mlp(norm(u))",
    "x = x + attn(norm(x)); x = conv(x); x = x + mlp(norm(x))",
)
"""What the layers of some 300 published models do."""

OTHERS = (
    Placement(
        name="residual streams",  # ResiDual: Xie et al., 2023
        formula="b = f(x); d = d + b; x = norm(x + b)",
        final="x + norm(d)",
        streams={"d": "x"},
    ),
    Placement(  # GPAS: Chen et al., 2025, with a gate that is not zero
        name="scaled without gradient",
        formula="x = x + f(norm(x)); x - silu(gain(0.3)) * stop(x)",
        final="norm(x)",
    ),
    Placement(  # nGPT: Loshchilov et al., 2024
        name="on the sphere",
        formula="l2norm(x + gain(0.05, 'channel') * (l2norm(f(x)) - x))",
        embed="l2norm(x)",
    ),
    Placement(name="dynamic tanh", formula="x + f(dyt(x))", final="dyt(x)"),
    Placement(name="dynamic erf", formula="x + f(derf(x))", final="derf(x)"),
    Placement(name="keel", formula="norm(S * x + f(norm(x)))"),  # Chen and Wei, 2026
    Placement(name="b2t", formula="h = norm(x + attn(x)); x = norm(x + h + mlp(h))"),  # Takase et al., 2022
    Placement(  # Mix-LN: Li, Yin and Liu, 2024
        name="mix",
        formula="x + f(norm(x))",
        final="norm(x)",
        ranges=(Range(until="L/2", formula="norm(x + f(x))"),),
    ),
    Placement(name="all inner norms", formula="x + f(norm(x), qkv=rmsnorm, out=norm, mid=layernorm)", embed="norm(x)"),
    Placement(
        name="shared gain",
        formula="g = gain(0.2); n = rmsnorm(x); x = (1 - g) * n + g * attn(n) / sqrt(l); x = x + g**2 * mlp(norm(x))",
        final="norm(x) / 2",
    ),
    Placement(  # a stream that is normalised, and starts from what the embedding's norm leaves
        name="two streams",
        formula="y = norm(y + f(x)); x = x + 0.5 * y",
        embed="norm(x)",
        final="norm(x - y)",
        streams={"y": "norm(x) / 3"},
    ),
)
"""Placements beyond the catalogue; together they hold every construct of the notation that can be built."""

PLACEMENTS: Mapping[str, Placement] = {
    **{entry.name: entry.placement for entry in entries()},
    **{placement.name: placement for placement in OTHERS},
}


THREE_PARTS = Placement(
    name="three parts",
    formula="x + f(norm(x))",
    ranges=(Range(until="L/4", formula="norm(x + f(x))"), Range(until="L/2", formula="x + f(x)")),
)

GAINS = (
    "norm(x + norm(f(x), gain=0))",
    "x + norm(f(norm(x)), gain=1/sqrt(2*L))",
    "x + gain(1/l, 'channel') * f(norm(x)) - gain(0.5)**2 * x",
    "log(1 + l) * x + sigmoid(gain(0.1)) * f(norm(x)) * s / S",
    "x / (1 + gain(0.2)**2) + f(norm(-x))",
)
"""Learned factors, and numbers that depend on the depth."""

LAYER = "n = norm(x); x = x + attn(n, qkv=norm, out=rmsnorm) + 0.5 * mlp(norm(x), mid=norm)"

BOTH_SIDES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"features": 3}, {"vocab": 7}),
    ({"vocab": 9}, {"features": 3}),
    ({"vocab": 9}, {"vocab": 7, "classes": 3}),
    ({"features": 3}, {"features": 5, "classes": 3}),
]
"""What the encoder and the decoder of a model take in, and what it gives out."""

SETTINGS: dict[str, dict[str, Any]] = {
    "encoder": {},
    "values": {"features": 3},
    "values, causal": {"features": 3, "causal": True},
    "values without positions": {"features": 3, "positions": "none"},
    "values, rotary": {"features": 3, "positions": "rotary"},
    "values, norms around the stack": {"features": 3, "embed": "norm(x)", "final": "rmsnorm(x)"},
    "classifier on values": {"classes": 3, "features": 5},
    "one head": {"heads": 1},
    "classifier on vectors": {"classes": 3},
    "classifier on ids": {"classes": 3, "vocab": 7},
    "no bias": {"bias": False},
    "relu": {"activation": "relu"},
    "gelu": {"activation": "gelu"},
    "gelu_tanh": {"activation": "gelu_tanh"},
    "silu": {"activation": "silu"},
    "gated": {"gated": True, "activation": "silu"},
    "gated, no bias": {"gated": True, "bias": False},
    "grouped heads": {"heads": 4, "kv_heads": 2},
    "one head of keys": {"heads": 4, "kv_heads": 1, "causal": True},
    "rotary": {"positions": "rotary"},
    "rotary, causal, another base": {"positions": "rotary", "causal": True, "rotary_base": 100.0},
    "rotary, grouped heads": {"positions": "rotary", "heads": 4, "kv_heads": 2},
    "relative": {"positions": "relative"},
    "relative, causal": {"positions": "relative", "causal": True},
    "ids without positions": {"positions": "none", "vocab": 7},
    "tied": {"tied": True, "vocab": 7, "causal": True},
    "scale 1": {"scale": 1.0},
    "causal on vectors": {"causal": True},
    "norms around the stack": {"embed": "norm(x)", "final": "rmsnorm(x)"},
}
"""What a stack can be besides its placement; LAYER is a layer with a norm at every inner site."""

HEADS: tuple[dict[str, Any], ...] = ({}, {"kv_heads": 2}, {"positions": "rotary"}, {"kv_heads": 1, "causal": True})

EXPERTS: tuple[dict[str, Any], ...] = (
    {},
    {"experts_used": 1},
    {"experts_used": 4},
    {"gated": True, "activation": "silu"},
)

CROSS = {
    "pre": "pre",
    "post": "post",
    "layer": "x = x + attn(norm(x)); x = x + cross(norm(x), qk=norm); x = x + mlp(norm(x))",
    "cross alone": "x = norm(x + cross(x))",
}

BUILDABLE = [
    block
    for block in BLOCKS
    if any(word in block for word in ("attn", "mlp", "moe", "cross"))
    and not any(word in block for word in ("ssm", "conv", "pool", "fourier", "y"))
]
WITH_STARTS = [block.replace("gain", "gain(0.7)").replace(" a * ", " 1.5 * ") for block in BUILDABLE]
"""The layers of published models that are made of built-in sublayers, each with a start for its gains."""

PADDED = np.array([[True, True, True, True, True], [True, True, True, False, False]])
SOURCE_PADDED = np.array([[True, True, True, False], [False, True, True, True]])
LEFT_PADDED = np.array([[False, False, True, True, True], [True, True, True, True, True]])
"""Under a causal mask, the first two tokens of the first sequence see nothing at all."""


def small(placement: Any = "pre", **fields: Any) -> Spec:
    """A spec that runs in milliseconds. Its epsilon is large, so that one in the wrong place shows.

    A constant of an encoder-decoder gets an encoder of the same depth.
    """
    sizes: dict[str, Any] = dict(layers=2, width=8, heads=2, hidden=12, eps=0.01, context=6)
    if needs_both_sides(placement) and "encoder" not in fields:
        same = {name: fields[name] for name in ("layers", "init") if name in fields}
        encoder = Spec(placement="deepnorm-encoder", **(sizes | same))
        sizes |= {"encoder": encoder, "sublayers": ("attn", "cross", "mlp")}
    return Spec(placement=placement, **(sizes | fields))


def needs_both_sides(name: Any) -> bool:
    """Whether a constant is made of the depths of both sides of an encoder-decoder."""
    return any({"Ld", "Le"} & set(formula.symbols) for formula in placement(name).formulas)


def random_weights(spec: Spec, seed: int = 0) -> dict[str, Array]:
    """Every parameter random: at gain 1 and bias 0 different placements agree, and a wrong one passes.

    Matrices are three times their start: branches as large as the skip. Norm gains and learned factors lie in
    (0.5, 1.5) and biases have deviation 0.3; a constant that starts elsewhere lies around its start.
    """
    random = np.random.default_rng(seed)
    found = {}
    parameters = plan(spec).parameters
    for name, start in weights(spec).items():
        kind = parameters[name].role.kind
        if kind == "bias" or name.endswith((".bias", ".shift")):
            found[name] = 0.3 * random.standard_normal(start.shape)
        elif kind == "constant":
            found[name] = (start + 0.3 * (np.abs(start) < 0.1)) * random.uniform(0.5, 1.5, start.shape)
        else:
            found[name] = start * 3 if kind in ("matrix", "writer") else start
    return found


def random_inputs(spec: Spec, seed: int = 1, batch: int = 2, tokens: int = 5) -> Array:
    """Vectors (B, T, D) or values (B, T, P) that are neither centred nor of unit size; ids (B, T) with a vocabulary."""
    random = np.random.default_rng(seed)
    if spec.vocab is not None:
        return random.integers(0, spec.vocab, (batch, tokens))
    return 0.4 + 1.3 * random.standard_normal((batch, tokens, spec.features or spec.width))


def title(placement: str | Placement) -> str:
    return placement if isinstance(placement, str) else placement.name


def as_small(placement: Placement, **fields: Any) -> Spec:
    """A small spec of any placement; one that counts the layers of an encoder gets one to attend to."""
    if any({"Le", "Ld"} & set(formula.symbols) for formula in placement.formulas):
        fields |= {"sublayers": ("attn", "cross", "mlp"), "encoder": small("pre", layers=3)}
    return small(placement, **fields)


def takes(placement: Placement, norm: str) -> bool:
    """Whether a placement can have this kind of norm: one that says where a norm's gain starts needs a gain."""
    has_gain = any(parameter.name == "weight" for parameter in NORM_KINDS[norm].parameters)
    calls = [call for formula in (*placement.formulas, placement.embed, placement.final) for call in formula.calls]
    return has_gain or all(call.start is None for call in calls if call.word == "norm")
