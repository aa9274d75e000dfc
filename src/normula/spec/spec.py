"""Here lives Spec: what to build, with nothing left to a framework's default."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from normula.catalog import placement
from normula.formula import Formula, Placement
from normula.formula.errors import nearest
from normula.formula.words import STEP, SUBLAYERS
from normula.spec.kinds import ACTIVATIONS, INIT_RULES, NORM_KINDS

SCHEMA = 1

VARIANCES = ("two-pass", "one-pass")
"""How LayerNorm may find a variance."""

POSITIONS = ("learned", "rotary", "relative", "none")
"""How a token may know its place."""


class NormulaWarning(UserWarning):
    """Something legal that is rarely meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A stack of layers: its placement, sizes and initial weights.

        >>> Spec(placement="pre", layers=2).layers
        2
        >>> Spec.from_dict(Spec(placement="deepnorm").to_dict()) == Spec(placement="deepnorm")
        True

    Args:
        placement: a name, a formula's text, a Formula or a Placement.
        layers: L, layers in all.
        width: D, features of a token.
        heads: H, attention heads; H divides D.
        hidden: F, hidden units of the MLP; None for 4 D.
        norm: kind of `norm`: layernorm, rmsnorm, l2norm, dyt, derf, none.
        eps: epsilon under the root of every norm.
        variance: how LayerNorm finds the variance of a token's features: two-pass (the mean first, then the squares of
            what differs from it) or one-pass, mean(x^2) - mean(x)^2, as `flax.linen.LayerNorm` does by default: faster
            in places, and lost to rounding where the mean is large beside the spread.
        activation: of the MLP: relu, gelu (exact), gelu_tanh, silu.
        sublayers: the sublayers of a layer in order, for a formula with `f`; a formula of a whole layer
            names its own.
        final: what comes out of the stack, such as "x" or "norm(x)"; None for the placement's own.
        embed: what happens to x once before the stack; None for the placement's own.
        causal: whether a token sees only itself and those before it.
        vocab: V, symbols of the vocabulary; None for a stack on vectors. With it the model maps ids to logits.
        features: P, values of a token that a linear map with a bias embeds, (B, T, P); instead of `vocab`. None for a
            stack on ids or on vectors of the width.
        context: most tokens that the learned positions reach; only with `vocab` or `features`.
        classes: classes of a classifier on the mean of the tokens; None for none.
        kv_heads: heads of keys and values, shared by groups of query heads; it divides heads. None for H, 1 for
            multi-query attention.
        scale: what attention's scores are multiplied by; None for 1/sqrt(head width).
        positions: how a token knows its place: learned (added to the embedding; needs `vocab` or `features`), rotary
            (queries and keys are turned), relative (a learned bias by distance, in the buckets of T5), none. None for
            learned with an embedding and none without.
        rotary_base: of the rotary angles.
        qk_norm: whether norms on queries, keys and values are over the whole `width` or over each `head`.
        gated: whether the MLP's hidden units are activation(gate x) * (up x): SwiGLU where the activation is silu.
        experts, experts_used: of a mixture of experts, and how many of them a token uses.
        tied: whether the head has the token embedding's matrix.
        encoder: the spec of an encoder whose output `cross` attends to.
        bias: whether the sublayers' matrices have biases.
        init: rule for initial weights: xavier, xavier_qkv, normal, torch, scaled, paper.
        dropout: share of values dropped in training: of attention weights, of the MLP's hidden units, of
            each sublayer's output and of the embedding.
        seed: of the initial weights.

    Raises:
        ValueError: a field that cannot be; the message says what must hold and what came.
    """

    placement: Placement | Formula | str = "pre"
    layers: int = 12
    width: int = 64
    heads: int = 4
    hidden: int | None = None
    norm: str = "layernorm"
    eps: float = 1e-5
    variance: str = "two-pass"
    activation: str = "gelu"
    sublayers: tuple[str, ...] = ("attn", "mlp")
    final: Formula | str | None = None
    embed: Formula | str | None = None
    causal: bool = False
    vocab: int | None = None
    features: int | None = None
    context: int = 256
    classes: int | None = None
    kv_heads: int | None = None
    scale: float | None = None
    positions: str | None = None
    rotary_base: float = 10000.0
    qk_norm: str = "width"
    gated: bool = False
    experts: int | None = None
    experts_used: int = 2
    tied: bool = False
    encoder: Spec | None = None
    bias: bool = True
    init: str = "xavier"
    dropout: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        self._set("placement", placement(self.placement))
        self._set("sublayers", (self.sublayers,) if isinstance(self.sublayers, str) else tuple(self.sublayers))
        for name in ("final", "embed"):
            text = getattr(self, name)
            self._set(name, Formula(text) if isinstance(text, str) else text)
        if self.hidden is None and isinstance(self.width, int):
            self._set("hidden", 4 * self.width)
        if self.positions is None:
            self._set("positions", "learned" if self.embeds else "none")
        self._check_words()
        self._check_sizes()
        self._check_attention()
        self._check_whole()
        _ = self.placed  # checks embed and final: their streams, and that they have no sublayer

    @property
    def placed(self) -> Placement:
        """The placement, with `embed` and `final` as this spec has them."""
        assert isinstance(self.placement, Placement)
        return replace(self.placement, embed=self.embed_formula, final=self.final_formula)

    @property
    def embed_formula(self) -> Formula:
        """What happens to x once before the stack."""
        assert isinstance(self.placement, Placement)
        return self.placement.embed if self.embed is None else Formula(str(self.embed))

    @property
    def final_formula(self) -> Formula:
        """What comes out of the stack."""
        assert isinstance(self.placement, Placement)
        return self.placement.final if self.final is None else Formula(str(self.final))

    @property
    def embeds(self) -> bool:
        """Whether what goes in is embedded: ids or values, and no vectors of the width."""
        return (self.vocab or self.features) is not None

    @property
    def mlp_width(self) -> int:
        """F, hidden units of the MLP."""
        assert self.hidden is not None
        return self.hidden

    @property
    def head_width(self) -> int:
        """K, features of a head."""
        return self.width // self.heads

    @property
    def key_heads(self) -> int:
        """Heads of keys and values."""
        return self.heads if self.kv_heads is None else self.kv_heads

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        data = {field.name: getattr(self, field.name) for field in fields(self)}
        assert isinstance(self.placement, Placement)
        data["placement"] = self.placement.to_dict()
        data["sublayers"] = list(self.sublayers)
        data["encoder"] = None if self.encoder is None else self.encoder.to_dict()
        for name in ("final", "embed"):
            data[name] = None if data[name] is None else str(data[name])
        return {"schema": SCHEMA, **data}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Spec:
        """From JSON.

        Raises:
            ValueError: another schema, or a field that this version does not know.
        """
        values = dict(data)
        if values.pop("schema", SCHEMA) != SCHEMA:
            raise ValueError(f"a spec of schema {SCHEMA} is read here; this one has schema {data['schema']}")
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                raise ValueError(f"a spec has no field {name!r}{nearest(name, known)}; it has {', '.join(known)}")
        if isinstance(values.get("placement"), Mapping):
            values["placement"] = Placement.from_dict(values["placement"])
        if isinstance(values.get("encoder"), Mapping):
            values["encoder"] = cls.from_dict(values["encoder"])
        return cls(**values)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_sizes(self) -> None:
        optional = ("vocab", "features", "classes", "kv_heads", "experts")
        for name in ("layers", "width", "heads", "hidden", "context", *optional):
            value = getattr(self, name)
            if value is None and name in optional:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} is a whole number of at least 1, not {value!r}")
        if self.words & {"attn", "cross"} and self.width % self.heads:
            raise ValueError(
                f"width must be divisible by heads, and {self.width} is not by {self.heads}; "
                f"with width {self.width}, heads can be {', '.join(map(str, _divisors(self.width)))}"
            )
        if not (isinstance(self.eps, float | int) and 0 <= self.eps < 1):
            raise ValueError(f"eps is a number from 0 up to 1, not {self.eps!r}")
        if not (isinstance(self.dropout, float | int) and 0 <= self.dropout < 1):
            raise ValueError(f"dropout is a share from 0 up to 1, not {self.dropout!r}")
        if not isinstance(self.seed, int) or self.seed < 0:
            raise ValueError(f"seed is a whole number of at least 0, not {self.seed!r}")
        for name in ("causal", "bias"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} is True or False, not {getattr(self, name)!r}")
        if self.width <= 2 and self._has_statistics():
            warnings.warn(
                f"a norm over {self.width} feature{'s' if self.width > 1 else ''} carries almost nothing: "
                "LayerNorm gives the bias for one feature and plus or minus the gain for two",
                NormulaWarning,
                stacklevel=4,
            )

    def _check_attention(self) -> None:
        attends = self.words & {"attn", "cross"}
        for name, default in (("kv_heads", None), ("scale", None), ("qk_norm", "width")):
            if not attends and getattr(self, name) != default:
                raise ValueError(f"{name} is a setting of attention, and no layer has any; leave it out")
        if attends and self.width % self.heads == 0 and self.heads % self.key_heads:
            raise ValueError(
                f"kv_heads must divide heads, and {self.key_heads} does not divide {self.heads}; "
                f"it can be {', '.join(map(str, _divisors(self.heads)))}"
            )
        if self.positions == "learned" and not self.embeds:
            raise ValueError(
                "learned positions are added to an embedding; give a vocab or features, or use rotary positions"
            )
        if self.positions == "rotary" and self.head_width % 2:
            raise ValueError(f"rotary positions turn pairs of features; the head width {self.head_width} is odd")
        if self.positions in ("rotary", "relative") and "attn" not in self.words:
            raise ValueError(f"{self.positions} positions are a part of self-attention, and no layer has any")

    def _check_whole(self) -> None:
        if self.gated and not self.words & {"mlp", "moe"}:
            raise ValueError("gated is a setting of the MLP, and no layer has one; leave it out")
        if (self.experts is None) == ("moe" in self.words):
            raise ValueError("experts and a sublayer moe go together; give both or neither")
        if self.experts is not None and not 1 <= self.experts_used <= self.experts:
            raise ValueError(f"experts_used is from 1 to the {self.experts} experts, not {self.experts_used!r}")
        if self.vocab is not None and self.features is not None:
            raise ValueError("what goes in is ids of a vocab or values of features; give one of the two")
        if self.tied and (self.vocab is None or self.classes is not None):
            raise ValueError("tied is a setting of a language model's head; give a vocab and no classes")
        if (self.encoder is None) == ("cross" in self.words):
            raise ValueError("an encoder and a sublayer cross go together; give both or neither")
        if self.encoder is not None and (not isinstance(self.encoder, Spec) or self.encoder.classes is not None):
            raise ValueError("encoder is the Spec of a stack without classes")

    def _check_words(self) -> None:
        for name, table in (
            ("norm", NORM_KINDS),
            ("variance", VARIANCES),
            ("activation", ACTIVATIONS),
            ("init", INIT_RULES),
            ("positions", POSITIONS),
            ("qk_norm", ("width", "head")),
        ):
            value = getattr(self, name)
            if not isinstance(value, str) or value not in table:
                raise ValueError(f"{name} is one of {', '.join(table)}, not {value!r}{nearest(str(value), table)}")
        named = [word for word in SUBLAYERS if word != STEP]
        if not self.sublayers:
            raise ValueError(f"a layer has at least one sublayer among {', '.join(named)}")
        for word in self.sublayers:
            if word not in named:
                raise ValueError(f"a sublayer is one of {', '.join(named)}, not {word!r}{nearest(str(word), named)}")
        assert isinstance(self.placement, Placement)
        initial = self.placement.initial
        if self.init == "paper" and initial is None:
            raise ValueError(
                f"init='paper' needs a placement whose paper states a rule, and {self.placement.name} has none; "
                "choose xavier, xavier_qkv, normal, torch or scaled"
            )
        if self.init == "paper" and initial is not None and initial.rule not in _drawn():
            rules = ", ".join(_drawn())
            raise ValueError(f"the rule of {self.placement.name} is one of {rules}, not {initial.rule!r}")

    @property
    def words(self) -> set[str]:
        """The sublayers that some layer has."""
        assert isinstance(self.placement, Placement)
        formulas = self.placement.formulas
        return {word for f in formulas for word in (self.sublayers if f.is_step else f.sublayers)}

    def _has_statistics(self) -> bool:
        """Whether some norm divides by what it finds in the features of a token."""
        words = self.placed_norms()
        return any(NORM_KINDS[self.norm if word == "norm" else word].uses_eps for word in words)

    def placed_norms(self) -> tuple[str, ...]:
        """The words of all norms of the placement, those around the stack too."""
        assert isinstance(self.placement, Placement)
        formulas = (*self.placement.formulas, self.embed_formula, self.final_formula)
        return tuple(word for formula in formulas for word in formula.norms)


def _drawn() -> list[str]:
    """The rules that can be drawn from: all but `paper`, which names one of them."""
    return [rule for rule in INIT_RULES if rule != "paper"]


def _divisors(value: int) -> list[int]:
    return [d for d in range(1, value + 1) if value % d == 0][:12]
