"""The placements that several claims are about, written out: a claim does not depend on the catalogue."""

from __future__ import annotations

from typing import Any

from normula.formula import Formula, Placement
from normula.formula.placement import InitialWeights, Range

_WRITERS = ("o", "down")
_VALUES_AND_MLP = ("v", "o", "up", "down")


def place(name: str, formula: str, final: str = "x", **fields: Any) -> Placement:
    """A placement; where it is not said, nothing follows the last layer."""
    return Placement(name=name, formula=Formula(formula), final=Formula(final), **fields)


def _xavier(factor: str, on: tuple[str, ...]) -> InitialWeights:
    return InitialWeights(rule="xavier", factor=factor, on=on)


_PRE, _POST, _CLOSED = "x + f(norm(x))", "norm(x + f(x))", "norm(x)"
_SIAMESE = "u = norm(x); z = f(norm(u + norm(d))); d = d + z; u + z/sqrt(2*l)"

_ALL = (
    place("Post-LN", _POST),
    place("Pre-LN", _PRE, _CLOSED),
    place("Pre-LN, scaled weights", _PRE, _CLOSED, initial=_xavier("(2*L)**(-1/2)", _WRITERS)),
    place("DeepNorm", "norm((2*L)**(1/4)*x + f(x))", initial=_xavier("(8*L)**(-1/4)", _VALUES_AND_MLP)),
    place("Admin, closed form", "norm(sqrt((S + 1)/log(S + 1) - 1)*x + f(x))"),
    place("Keel", "norm(S*x + f(norm(x)))"),
    place("Peri-LN", "x + norm(f(norm(x)))", _CLOSED),
    place("output norm", "x + norm(f(x))", _CLOSED),
    place("output and query-key norm", "x = x + norm(attn(x, qk=norm)); x + norm(mlp(x))", _CLOSED),
    place(
        "Sub-LN",
        "x = x + attn(norm(x), out=norm); x + mlp(norm(x), mid=norm)",
        _CLOSED,
        initial=_xavier("sqrt(log(2*L))", _VALUES_AND_MLP),
    ),
    place("LayerNorm Scaling", "x + f(norm(x)/sqrt(l))", _CLOSED),
    place("Mix-LN", _PRE, _CLOSED, ranges=(Range(until="L/4", formula=Formula(_POST)),)),
    place("ResiDual", "b = f(x); d = d + b; norm(x + b)", "x + norm(d)", streams={"d": "x"}),
    place("B2T", "h = norm(x + attn(x)); norm(x + h + mlp(h))"),
    place("SiameseNorm", _SIAMESE, "norm(norm(x) + norm(d))", streams={"d": "x"}),
    place("SiameseNorm, open end", _SIAMESE, "norm(x) + norm(d)", streams={"d": "x"}),
    place("ReZero", "x + gain(0)*f(x)"),
)

SCHEMES = {scheme.name: scheme for scheme in _ALL}
