"""A name or a formula's text to a placement."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files

from normula.catalog.entry import Entry
from normula.formula import Formula, Placement, surrounded
from normula.formula.errors import nearest

_LOOKS_LIKE_NAME = re.compile(r"[\w .-]*\Z")


@cache
def entries() -> tuple[Entry, ...]:
    """The catalogue, in the order in which it is best learned."""
    text = (files("normula.catalog") / "placements.toml").read_text(encoding="utf-8")
    return tuple(Entry.from_dict(table) for table in tomllib.loads(text)["placement"])


@cache
def _by_name() -> dict[str, Entry]:
    table: dict[str, Entry] = {}
    for one in entries():
        for name in one.names:
            assert table.setdefault(name.lower(), one) is one, f"two placements are called {name}"
    return table


def placements() -> tuple[Placement, ...]:
    """All named placements."""
    return tuple(one.placement for one in entries())


def entry(name: str) -> Entry:
    """The entry of a name, title or alias, in any case.

    Raises:
        ValueError: no placement is called so; the message lists the names and the nearest.
    """
    found = _by_name().get(name.lower()) if isinstance(name, str) else None
    if found is None:
        known = ", ".join(one.name for one in entries())
        raise ValueError(f"no placement is called {name!r}; the names are {known}{nearest(str(name), _by_name())}")
    return found


def placement(name: str | Formula | Placement) -> Placement:
    """The placement of a name, or of a formula's text.

        >>> placement("pre").formula
        Formula('x + f(norm(x))')
        >>> placement("x + f(norm(x))").final
        Formula('norm(x)')

    Raises:
        ValueError: no placement is called so.
        FormulaError: the text is no name and no formula.
    """
    if isinstance(name, Placement):
        return name
    if isinstance(name, Formula):
        return surrounded(name)
    if not isinstance(name, str):
        raise ValueError(f"a placement is a name such as 'pre' or a formula's text, not {name!r}")
    if name.lower() in _by_name() or _LOOKS_LIKE_NAME.match(name):
        return entry(name).placement
    return surrounded(Formula(name))


def names_of(formula: Formula) -> tuple[Entry, ...]:
    """The entries with this formula, also where one is a step and the other the layer that it makes.

    Those with a registered operator are left out: their formula is only the branch inside it.
    """
    layer = formula.layer()
    return tuple(one for one, its_layer in _layers() if one.placement.formula == formula or its_layer == layer)


@cache
def _layers() -> tuple[tuple[Entry, Formula], ...]:
    """The entries without an operator, each with the formula of a whole layer."""
    return tuple((one, one.placement.formula.layer()) for one in entries() if one.placement.operator is None)
