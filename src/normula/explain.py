"""Here lives Explanation: all that a formula says of itself, and what is known of it; and what a norm module does."""

from __future__ import annotations

import math
import textwrap
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, overload

from normula.catalog import Entry, entries, names_of, placement
from normula.formula import Formula, Placement
from normula.formula.tree import Number
from normula.formula.words import INNER, NORMS
from normula.spec import Spec, plan
from normula.spec.kinds import NORM_KINDS
from normula.spec.operators import operator
from normula.spec.plan import BUILT_IN
from normula.spec.spec import VARIANCES

DEPTH = 16
"""Layers of the stack on which learned numbers are counted: enough for the last to lie behind all first ranges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A placement explained.

    Attributes:
        placement: the formula and what surrounds it.
        entry: what the catalogue knows of it; None where it has no known name.
        others: entries with the same formula and other surroundings.
        layer: the formula of a whole layer.
        added: what it adds to a layer and to the stack, compared with x + f(x).
        cautions: what is unusual about it.
    """

    placement: Placement
    entry: Entry | None
    others: tuple[Entry, ...]
    layer: Formula
    added: str
    cautions: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        formula, entry = self.placement.formula, self.entry
        data: dict[str, Any] = {
            **self.placement.to_dict(),
            "layer": str(self.layer),
            "words": formula.words,
            "latex": formula.latex,
            "skip": formula.skip if self.placement.operator is None else None,
            "drawing": formula.drawing(),
            "added": self.added,
            "names": list(entry.names) if entry else [],
            "same_formula": [other.name for other in self.others],
            "cautions": list(self.cautions),
        }
        if entry:
            data |= {
                "paper": str(entry.paper) if entry.paper else None,
                "origin": entry.origin,
                "users": [{"model": user.model, "source": user.source, "sure": user.sure} for user in entry.users],
                "cost": entry.cost,
                "when": entry.when,
                "when_not": entry.when_not,
                "advice_source": entry.advice_source,
                "predicts": [{"statement": p.statement, "source": p.source} for p in entry.predicts],
                "notes": list(entry.notes),
                "initial_source": entry.initial_source,
            }
        return data

    def __str__(self) -> str:
        """For a terminal of 80 columns."""
        formula, entry = self.placement.formula, self.entry
        known = f"{entry.title} ({', '.join(entry.aliases)})" if entry else "no known name"
        lines = [str(formula), "", *_paragraph(known), "", formula.drawing(), "", *_paragraph(formula.words), ""]
        if self.placement.operator:
            about = operator(self.placement.operator)
            lines += _field(
                "inside", f"the registered operator {self.placement.operator}: {about.title} ({about.source})"
            )
        plain = self.placement.operator is None
        lines += _field("layer", str(self.layer)) if formula.is_step and plain else []
        lines += _field("before and after", f"embed {self.placement.embed}, final {self.placement.final}")
        for name, start in self.placement.streams:
            lines += _field(f"stream {name}", f"starts as {start}")
        for part in self.placement.ranges:
            lines += _field("first layers", f"{part.formula}, up to layer {part.until}")
        lines += (
            _field("skip path", formula.skip if len(formula.streams) > 1 else f"dx'/dx = {formula.skip}")
            if plain
            else []
        )
        lines += _field("adds", self.added)
        if self.placement.initial and entry:
            factor = self.placement.initial
            rule = factor.rule + (f", times {factor.factor} on {', '.join(factor.on)}" if factor.factor else "")
            lines += _field("initial weights", f"{rule}. {entry.initial_source}")
        if entry:
            lines += _field("paper", str(entry.paper)) if entry.paper else _field("origin", entry.origin or "")
            for constant in entry.constants:
                lines += _field("constant", f"{constant.expr}: {constant.meaning}")
            models = [user.model + ("" if user.sure else " (said, not read)") for user in entry.users]
            lines += _field("used by", "; ".join(models)) if models else []
            lines += _field("cost", entry.cost)
            lines += _field("take it", entry.when)
            lines += _field("leave it", entry.when_not)
            lines += _field("source", entry.advice_source)
            for note in entry.notes:
                lines += _field("note", note)
        for other in self.others:
            lines += _field("see also", f"{other.name}: the same formula, {_unlike(self.placement, other.placement)}")
        for caution in self.cautions:
            lines += _field("caution", caution)
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class NormExplanation:
    """A norm module explained.

    Attributes:
        module: its class.
        eps: epsilon under the root.
        variance: how it finds the variance, one-pass or two-pass; None where it subtracts no mean.
    """

    module: str
    eps: float
    variance: str | None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def __str__(self) -> str:
        """For a terminal of 80 columns."""
        lines = [*_field("norm", self.module), *_field("epsilon", f"{self.eps:g}")]
        lines += _field("variance", _VARIANCES[self.variance])
        return "\n".join(lines + (_field("caution", _LOST) if self.variance == "one-pass" else []))


_VARIANCES = {
    "one-pass": "one pass, mean(x^2) - mean(x)^2",
    "two-pass": "two passes, mean((x - mean(x))^2)",
    None: "none: the mean of the squares, from which nothing is subtracted",
}

_LOST = (
    "Where the mean is large beside the spread, the two terms agree in all the digits that float32 has and the "
    "variance is lost: at mean 1e4 and spread 1 nothing of it is left. use_fast_variance=False in Flax, or "
    "variance='two-pass' here, takes two passes."
)


@overload
def explain(what: str | Formula | Placement) -> Explanation: ...


@overload
def explain(what: object) -> Explanation | NormExplanation: ...


def explain(what: object) -> Explanation | NormExplanation:
    """Explain a placement by its name, any formula, a stack that was built, or a norm module of Flax.

        >>> explain("pre").entry.title
        'Pre-LN'

    Raises:
        ValueError: no placement is called so.
        FormulaError: the text is no name and no formula.
    """
    if (norm := _norm(what)) is not None:
        return norm
    spec = getattr(what, "spec", None)
    placed = placement(spec.placed if isinstance(spec, Spec) else what)  # type: ignore[arg-type] # refused there
    known = names_of(placed.formula) if placed.operator is None else ()
    same = [entry for entry in known if entry.placement.computes_as(placed)]
    if placed.operator is not None:
        same = [entry for entry in entries() if entry.placement.computes_as(placed)]
    entry = next((one for one in same if one.name == placed.name), same[0] if same else None)
    return Explanation(
        placement=placed,
        entry=entry,
        others=tuple(other for other in known if other is not entry),
        layer=placed.formula.layer(),
        added=_added(placed),
        cautions=tuple(_cautions(placed)),
    )


def _norm(what: object) -> NormExplanation | None:
    """What a norm module does, told by its fields; None for anything else."""
    fast, variance = getattr(what, "use_fast_variance", None), getattr(what, "variance", None)
    if isinstance(fast, bool):  # the norms of flax.linen and flax.nnx; those without a bias subtract no mean
        centres, eps, form = hasattr(what, "use_bias"), getattr(what, "epsilon", 0.0), ("two-pass", "one-pass")[fast]
    elif variance in VARIANCES and getattr(what, "kind", None) in NORM_KINDS:  # ours
        centres, eps, form = getattr(what, "kind", "") == "layernorm", getattr(what, "eps", 0.0), variance
    else:
        return None
    module = f"{type(what).__module__.split('.')[0]}'s {type(what).__name__}"
    return NormExplanation(module=module, eps=float(eps), variance=form if centres else None)


def _added(placed: Placement) -> str:
    """Norms, gains and their numbers, counted on the plan of a small stack."""
    formula = placed.formula.layer()
    if any(gain.start is None for gain in formula.gains):
        return "a learned factor whose start is not stated"
    inner = sum(len(call.inner) for call in formula.calls)
    words = [_counted(len(formula.norms), "norm", "no norm")]
    words += [_counted(inner, "inner norm")] if inner else []
    words += [_counted(len(formula.gains), "learned factor")] if formula.gains else []
    around = len(placed.embed.norms) + len(placed.final.norms)
    text = f"{' and '.join(words)} a layer, {_counted(around, 'norm', 'none')} around the stack"
    if set(formula.sublayers) <= set(BUILT_IN):
        text += f"; with LayerNorm at width D = 64, {_numbers(placed)}"
    return text


def _numbers(placed: Placement) -> str:
    """Learned numbers that the placement itself holds, in a layer and around the stack."""
    written = plan(Spec(placement=placed, layers=DEPTH, width=64), decoder_layers=DEPTH)  # known depths on both sides
    sizes = {name: math.prod(p.shape) for name, p in written.parameters.items() if p.role.kind == "constant"}
    layer = sum(size for name, size in sizes.items() if name.startswith(f"layers.{DEPTH - 1}."))
    around = sum(size for name, size in sizes.items() if not name.startswith("layers."))
    return f"{layer} numbers a layer and {around} around"


def _unlike(placed: Placement, other: Placement) -> str:
    """What sets a placement with the same formula apart."""
    said = []
    if other.ranges != placed.ranges:
        first = ", ".join(f"`{part.formula}` up to layer {part.until}" for part in other.ranges)
        said.append(f"first {first}" if first else "in all layers")
    for where in ("embed", "final"):
        if getattr(other, where) != getattr(placed, where):
            said.append(f"{where} {getattr(other, where)}")
    if other.computes_as(placed):
        said.append("with other initial weights")
    return ", ".join(said)


def _cautions(placed: Placement) -> list[str]:
    formula = placed.formula
    said = []
    kept = formula.skip == "1" and not placed.final.norms
    if kept and any(word in NORMS for word in formula.norms):
        said.append(
            "The stream is never normalised, and no norm closes the stack: what leaves it grows with depth. "
            "Pre-LN as published ends with a norm."
        )
    direct = [call for call in formula.calls if call.word in INNER and "attn" in formula.layer().sublayers]
    enters = any(site.endswith("norm_in") for site in formula.sites)
    zero = [call for call in formula.calls if call.start == Number(Fraction(0))]
    outside = formula.norms and not enters and formula.skip == "1" and not zero
    if outside and not any(call.inner for call in direct):
        said.append(
            "Nothing normalises what enters a sublayer: attention's logits are quadratic in a stream that grows. "
            "With Xavier weights this explodes in deep stacks; qk=norm cures it."
        )
    if any(gain.start == Number(Fraction(0)) for gain in formula.gains):
        said.append(
            "A gain that starts at 0 makes every step the identity: the sublayers' gradients start at exactly 0."
        )
    if zero:
        said.append(
            "A norm whose gain starts at 0 makes every step the identity: the sublayers' gradients start at exactly 0."
        )
    return said


def _counted(number: int, noun: str, none: str = "none") -> str:
    return none if number == 0 else f"{number} {noun}{'s' if number > 1 else ''}"


def _field(name: str, text: str) -> list[str]:
    return textwrap.wrap(text, 80, initial_indent=f"{name:<17} ", subsequent_indent=" " * 18, break_on_hyphens=False)


def _paragraph(text: str) -> list[str]:
    return textwrap.wrap(text, 80, break_on_hyphens=False)
