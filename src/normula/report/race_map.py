"""The stability map: the loss over rate and depth, for each contestant and warmup."""

from __future__ import annotations

import math
from collections.abc import Sequence

from normula.race.words import interval, loss
from normula.record import Cell, Facet
from normula.report.contestants import Shown
from normula.report.heat import Heat, Spot
from normula.report.plates import wide
from normula.report.race_groups import FacetGroup, Found
from normula.report.scale import Scale
from normula.report.words import SYMBOLS, capital, count

LONGEST = 6
"""Characters that fit a cell where there are seven rates."""


def maps(found: Found, contestants: Sequence[Shown]) -> list[tuple[str, list[Heat]]]:
    """For each group of facets and each warmup a title and a map for each contestant; all are filled by one scale."""
    losses = [cell.loss.value for cell in found.race.cells if math.isfinite(cell.loss.value)]
    stuck = found.race.data.get("stuck_loss", math.nan)
    top = stuck if isinstance(stuck, float) and math.isfinite(stuck) else max(losses, default=1.0)
    filled = Scale(min([*losses, top]), top, wide([*losses, top]))
    return [
        (_title(group, warmup, found.warmups), [_heat(found, group, warmup, one, filled) for one in contestants])
        for group in found.groups
        for warmup in found.warmups
    ]


def _title(group: FacetGroup, warmup: int, warmups: Sequence[int]) -> str:
    words = f"warmup over {count(warmup, 'step')}" if warmup else "no warmup"
    return capital(", ".join(part for part in (group.title, words if len(warmups) > 1 or warmup else "") if part))


def _heat(found: Found, group: FacetGroup, warmup: int, one: Shown, filled: Scale) -> Heat:
    rows = [found.cells(facet, one.name, warmup) for facet in group.facets]
    best = [found.standing(facet, one.name) for facet in group.facets]
    ends = [
        f"{_row(facet)} {loss(row.loss.value)} at rate {row.lr:g}"
        for facet, row in zip(group.facets, best, strict=True)
        if row.warmup == warmup and not math.isnan(row.loss.value)
    ]
    return Heat(
        title=one.title,
        seen=f"Best of all settings: {', '.join(ends)}." if ends else "Its best setting has another warmup.",
        rows=[str(facet.depth) for facet in group.facets],
        columns=[_short(f"{cell.lr:g}", cell.lr) for cell in rows[0]],
        row_label="depth",
        column_label="learning rate",
        spots=[
            [_spot(cell, filled, framed=(cell.lr, warmup) == (row.lr, row.warmup)) for cell in cells]
            for cells, row in zip(rows, best, strict=True)
        ],
    )


def _row(facet: Facet) -> str:
    return f"depth {facet.depth}"


def _spot(cell: Cell, filled: Scale, *, framed: bool) -> Spot:
    runs = sum(cell.outcomes.values())
    if not runs:
        return Spot(words="")
    bad = [(word, number) for word, number in cell.outcomes.items() if word != "learned"]
    signs = " ".join(f"{SYMBOLS[word]}{'' if number == runs else f' {number}/{runs}'}" for word, number in bad)
    value = cell.loss.value
    came = ", ".join(f"{number} {word}" for word, number in cell.outcomes.items())
    words = interval(cell.loss) if math.isfinite(value) else "no loss"
    where = f"{cell.name}, {_row(cell.facet)}, rate {cell.lr:g}, warmup {cell.warmup}"
    return Spot(
        words=_short(loss(value), value) if math.isfinite(value) else bad[0][0],
        sign=signs,
        short="".join(SYMBOLS[word] for word, _ in bad),
        fill=_fill(value, filled),
        colour=f"{bad[0][0]}-tint" if len(cell.outcomes) == 1 and bad and bad[0][0] in ("stuck", "diverged") else "",
        framed=framed,
        tells=f"{where}: {words} nats; {came}",
    )


def _short(text: str, value: float) -> str:
    """A text, or where it is long the value with two digits, such as 6.5e-4."""
    return text if len(text) <= LONGEST else f"{value:.1e}".replace("e-0", "e-")


def _fill(value: float, filled: Scale) -> float:
    """1 for the lowest loss of all, 0 from the loss of symbol frequencies on."""
    at, low, high = (filled.place(one) for one in (value, filled.low, filled.high))
    if math.isnan(at) or high <= low:
        return 0.0
    return min(1.0, max(0.0, (high - at) / (high - low)))
