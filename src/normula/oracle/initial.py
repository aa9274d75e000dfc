"""Here live the initial weights: drawn from a seed by named rules, so that every framework starts from the same ones.

    xavier      N(0, 2 / (in + out)), biases 0      Glorot and Bengio, 2010, equation 12, as a normal of that variance
    xavier_qkv  xavier, `out` of a query, key or value matrix counting the rows of all three
                                        torch.nn.MultiheadAttention, whose three are one matrix; with out = in it makes
                                        them smaller by sqrt(2), which fairseq does outright
    normal      N(0, 0.02^2), biases 0                 Radford et al., GPT, 2018, section 4.1
    torch       U(-1/sqrt(in), 1/sqrt(in)), biases alike                               torch.nn.Linear's default
    scaled      normal, and what writes to the stream divided by sqrt(S)               Radford et al., GPT-2, 2019

S counts the sublayers in all, so 2L for L layers of two. A number depends on (seed, name, shape, role, rule) alone:
not on what was drawn before it, nor on the placement around it. The rules that draw from a normal scale the same
standard draws, so a comparison of two rules compares their scales and not their luck.
"""

import difflib
import hashlib
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from normula.oracle.norms import Array
from normula.spec import Parameter, Plan, Role, Spec, plan
from normula.spec.kinds import INIT_RULES

RULES = tuple(rule for rule in INIT_RULES if rule != "paper")
NORMAL_WIDTH = 0.02  # GPT's, kept by BERT and GPT-2


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """How an array starts: every entry `scale` (fixed), N(0, scale^2), U(-scale, scale), or as a unit vector.

    `unit` is an identity matrix, or a vector with a 1 at place `scale`.
    """

    kind: Literal["fixed", "normal", "uniform", "unit"]
    scale: float

    def drawn(self, random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """An array of this law, float64."""
        match self.kind:
            case "fixed":
                return np.full(shape, self.scale)
            case "normal":
                return self.scale * random.standard_normal(shape)
            case "uniform":
                return self.scale * random.uniform(-1, 1, shape)
            case "unit":
                return np.eye(*shape) if len(shape) == 2 else np.eye(shape[0])[int(self.scale)]


def law(
    role: Role, shape: tuple[int, ...], *, rule: str, sublayers_total: int, factor: float = 1.0, name: str = "an array"
) -> Law:
    """How an array of this role starts under a rule. `factor` multiplies a matrix after the draw (DeepNorm's beta).

    Token embeddings are N(0, 1), the map that embeds P features N(0, 1/P) with a bias of 0, position embeddings
    N(0, 0.02^2) and the head N(0, 1/D) under every rule, so that a comparison of rules compares the branches alone: the
    stream starts and is read out at the same scale.

    `paper` is no rule of its own: whoever calls looks up which rule, and which factor, the placement's paper states.

    >>> law(Role(kind="head"), (5, 4), rule="xavier", sublayers_total=12)
    Law(kind='normal', scale=0.5)
    """
    if rule not in RULES:
        raise ValueError(_refusal(rule))
    if factor != 1.0 and role.kind not in ("matrix", "writer"):
        raise ValueError(f"A factor multiplies the matrices of sublayers; {name} is a {role.kind} and got {factor}.")

    match role.kind:
        case "constant" | "unit":
            assert role.start is not None
            return Law(kind="fixed" if role.kind == "constant" else "unit", scale=role.start)
        case "token_embedding":
            return Law(kind="normal", scale=1.0)
        case "position_embedding":
            return Law(kind="normal", scale=NORMAL_WIDTH)
        case "head" | "feature_embedding":
            return Law(kind="normal", scale=1 / math.sqrt(shape[1]))
        case "bias":
            assert role.inputs is not None
            return (
                Law(kind="uniform", scale=_torch_bound(role.inputs))
                if rule == "torch"
                else Law(kind="fixed", scale=0.0)
            )
        case "matrix" | "writer":
            out, inputs = shape[-2:]  # experts are matrices side by side
            if rule == "torch":
                return Law(kind="uniform", scale=factor * _torch_bound(inputs))
            if rule == "xavier_qkv" and role.fused is not None:
                out = role.fused
            width = math.sqrt(2 / (inputs + out)) if rule.startswith("xavier") else NORMAL_WIDTH
            shrinks = rule == "scaled" and role.kind == "writer"
            return Law(kind="normal", scale=factor * width / math.sqrt(sublayers_total if shrinks else 1))


def draw(
    name: str, role: Role, shape: tuple[int, ...], *, rule: str, seed: int, sublayers_total: int, factor: float = 1.0
) -> Array:
    """The start of the array of this name, from its law.

    >>> draw("head.weight", Role(kind="head"), (5, 4), rule="xavier", seed=0, sublayers_total=12).shape
    (5, 4)
    >>> draw("norm.weight", Role(kind="constant", start=1.0), (2,), rule="xavier", seed=0, sublayers_total=12)
    array([1., 1.])
    """
    if seed < 0:
        raise ValueError(f"The seed must not be negative; got {seed}.")
    found = law(role, shape, rule=rule, sublayers_total=sublayers_total, factor=factor, name=name)
    return found.drawn(_random(name, seed), shape)


def weights(spec: Spec, given: Collection[str] = ()) -> dict[str, Array]:
    """Every parameter of a spec at its start, by name; float64. Sublayers that are `given` have none here.

    >>> weights(Spec(placement="pre", layers=1, width=4, heads=2))["layers.0.attn.norm_in.weight"]
    array([1., 1., 1., 1.])
    """
    return {
        name: law.drawn(_random(name, seed), parameter.shape) for name, parameter, law, seed in laws(plan(spec, given))
    }


def laws(written: Plan, prefix: str = "") -> Iterator[tuple[str, Parameter, Law, int]]:
    """Name, parameter, law and seed of every array; an encoder has a rule and a seed of its own."""
    if written.encoder is not None:
        yield from laws(written.encoder, f"{prefix}encoder.")
    spec = written.spec
    rule = spec.init
    if rule == "paper":
        assert spec.placed.initial is not None
        rule = spec.placed.initial.rule
    for name, parameter in written.parameters.items():
        if not name.startswith("encoder."):
            found = law(
                parameter.role,
                parameter.shape,
                rule=rule,
                sublayers_total=written.sublayers_total,
                factor=parameter.factor,
                name=prefix + name,
            )
            yield prefix + name, parameter, found, spec.seed


def _torch_bound(inputs: int) -> float:
    # torch/nn/modules/linear.py, Linear.reset_parameters: kaiming_uniform_ with a = sqrt(5) has the bound
    # sqrt(2 / (1 + a^2)) sqrt(3 / in) = 1/sqrt(in), and the bias is given the same bound outright.
    return 1 / math.sqrt(inputs)


def _random(name: str, seed: int) -> np.random.Generator:
    """A generator that belongs to this seed and this name.

    PCG64 is written out because `default_rng` may come to mean another generator; sha256, because Python's own `hash`
    of a text differs from one process to the next.
    """
    words = np.frombuffer(hashlib.sha256(name.encode()).digest(), dtype="<u4")
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *words.tolist()])))


def _refusal(rule: str) -> str:
    if rule == "paper":
        return f"'paper' names the placement's own rule; look up which it is and pass one of {', '.join(RULES)}."
    nearest = difflib.get_close_matches(rule, RULES, n=1)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    return f"A rule for initial weights is one of {', '.join(RULES)}; got {rule!r}.{hint}"
