"""Curves of the loss at each contestant's best settings, and the stream and gradient of the deepest stacks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from normula.race.words import loss
from normula.record import Snapshot, Trial
from normula.report.chart import DASHES, Chart, Line, shared
from normula.report.contestants import Shown
from normula.report.plates import missing, wide
from normula.report.race_groups import FacetGroup, Found
from normula.report.runs import curve, mean
from normula.report.theme import RAMP
from normula.report.words import capital, number


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """What is plotted against the layer: the stream before each and after the last, or the gradient of each."""

    title: str
    unit: str
    first: int
    of: Callable[[Snapshot], Sequence[float]]


QUANTITIES = (
    Quantity(title="Size of the stream", unit="RMS over D", first=0, of=lambda look: look.rms),
    Quantity(title="Gradient of each layer", unit="norm of the gradient", first=1, of=lambda look: look.gradients),
)


def curves(found: Found, contestants: Sequence[Shown]) -> list[tuple[str, list[Chart]]]:
    """For each group of facets a title and a panel for each contestant, on one axis."""
    groups = []
    for group in found.groups:
        charts = [chart for one in contestants if (chart := _curves(found, group, one)).lines]
        values = [value for chart in charts for line in chart.lines for value in line.y]
        log = wide(values)
        if charts:
            groups.append((capital(group.title), shared([replace(chart, log=log) for chart in charts])))
    return groups


def streams(found: Found, contestants: Sequence[Shown]) -> list[tuple[str, list[Chart]]]:
    """For each group of facets and each quantity a title and a panel for each contestant, of the deepest stacks."""
    groups = []
    for group in found.groups:
        facet = group.facets[-1]
        for quantity in QUANTITIES:
            of = [(one, _looks(found.best_runs(facet, one.name), quantity)) for one in contestants]
            values = [value for _, lines in of for line in lines for value in line.y]
            charts = [_stream(one, lines, quantity, log=wide(values)) for one, lines in of if lines]
            if charts:
                where = ", ".join(part for part in (quantity.title, group.title, f"depth {facet.depth}") if part)
                groups.append((where, shared(charts)))
    return groups


def _curves(found: Found, group: FacetGroup, one: Shown) -> Chart:
    lines, seen, notes = [], [], []
    for place, facet in enumerate(group.facets):
        trials = [trial for trial in found.best_runs(facet, one.name) if trial.curve]
        if not trials:
            notes.append(f"Depth {facet.depth}: no run with a loss.")
            continue
        looks = Line(label="", x=(), y=(), colour=one.colour, dash=DASHES[place % len(DASHES)])
        if len(trials) > 1:
            lines += [_seed(trial, looks) for trial in trials]
        whole = curve(trials)
        label = f"depth {facet.depth}"
        lines.append(replace(looks, label=label, x=whole.steps, y=whole.mean, stops=whole.ended, weight=2.2))
        row = found.standing(facet, one.name)
        ends = f"ends at {loss(row.loss.value)} nats" if math.isfinite(row.loss.value) else "has no final loss"
        warmup = f", warmup {row.warmup}" if len(found.warmups) > 1 or row.warmup else ""
        seen.append(f"depth {facet.depth} at rate {row.lr:g}{warmup} {ends}")
    stuck = found.race.data.get("stuck_loss", math.nan)
    return Chart(
        title=one.title,
        seen=capital("; ".join(seen)) + "." if seen else "Nothing was run.",
        lines=lines,
        x_label="training step",
        y_label="training loss (nats)",
        references=((stuck, "frequencies"),) if isinstance(stuck, float) and math.isfinite(stuck) else (),
        notes=notes,
        hover=True,
    )


def _seed(trial: Trial, looks: Line) -> Line:
    """One seed's curve, thin and without a name."""
    found = curve([trial])
    return replace(looks, x=found.steps, y=found.mean, dash=(), weight=0.6)


def _looks(trials: Sequence[Trial], quantity: Quantity) -> list[Line]:
    """A line for each update that was looked at: the mean over the seeds that were."""
    steps = sorted({look.step for trial in trials for look in trial.snapshots if quantity.of(look)})
    ramp = [RAMP[round(i * (len(RAMP) - 1) / max(1, len(steps) - 1))] for i in range(len(steps))]
    lines = []
    for place, (step, colour) in enumerate(zip(steps, ramp, strict=True)):
        of = [quantity.of(look) for trial in trials for look in trial.snapshots if look.step == step]
        values = [mean(layer) for layer in zip(*of, strict=False)]
        layers = [float(quantity.first + i) for i in range(len(values))]
        lines.append(Line(label=f"step {step}", x=layers, y=values, colour=colour, weight=1.1 + 0.25 * place))
    return lines


def _stream(one: Shown, lines: Sequence[Line], quantity: Quantity, *, log: bool) -> Chart:
    first, last = lines[0], lines[-1]
    return Chart(
        title=one.title,
        seen=f"After the last layer: {number(first.y[-1])} at {first.label}, {number(last.y[-1])} at {last.label}."
        if quantity.first == 0
        else f"First layer: {number(first.y[0])} at {first.label}, {number(last.y[0])} at {last.label}.",
        lines=lines,
        x_label="layer",
        y_label=quantity.unit,
        log=log,
        notes=[note for line in lines for note in missing(line.label, line.y, log)],
        hover=True,
    )
