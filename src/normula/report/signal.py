"""Signal and gradient through the layers, at initialisation and over the first training steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from normula.record import Flow, StepFlow
from normula.report.chart import DASHES, Chart, Line, shared
from normula.report.contestants import Shown
from normula.report.plates import Group, missing, plates, wide
from normula.report.runs import band, mean
from normula.report.theme import RAMP
from normula.report.words import number


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """What is plotted against the layer.

    Args:
        title: what it is.
        unit: for its axis.
        of: its value at a step of the stream.
        log: whether its axis is logarithmic; None to let the values decide.
        before: whether it belongs to the stream before the step rather than after.
        apart: whether the sublayers of a layer differ so much that one line through them all would be a zigzag.
    """

    title: str
    unit: str
    of: Callable[[StepFlow], float]
    log: bool | None = None
    before: bool = False
    apart: bool = False


RMS = Quantity(title="Size of the stream", unit="RMS over D", of=lambda step: step.rms_after)
RATIO = Quantity(title="Branch over skip", unit="branch RMS / skip RMS", of=lambda step: step.ratio, apart=True)
GRADIENT = Quantity(title="Gradient", unit="norm of the gradient", of=lambda step: step.gradient, log=True, before=True)
SKIP = Quantity(
    title="Gradient on the skip path alone",
    unit="norm of the gradient",
    of=lambda step: step.skip_gradient,
    log=True,
    before=True,
)
COSINE = Quantity(
    title="Likeness of the tokens", unit="mean cosine between tokens", of=lambda step: step.token_cosine, log=False
)

Pair = tuple[Shown, Flow]


class Looks(Protocol):
    """How what was measured looks in every chart; without a label, where it is alone."""

    @property
    def label(self) -> str: ...

    @property
    def colour(self) -> str: ...

    @property
    def marker(self) -> str: ...


def at_start(pairs: Sequence[tuple[Looks, Flow]]) -> list[Chart]:
    """All placements, a panel for each quantity; sublayers, and the skip's part of a gradient, told apart by dashes."""
    charts = []
    for quantity in (RMS, RATIO, GRADIENT, COSINE):
        lines = [line for one, flow in pairs for line in _lines_at_start(one, flow, quantity)]
        title = "Gradient, whole and on the skip path alone" if quantity is GRADIENT else quantity.title
        charts.append(_chart(title, quantity, lines))
    return charts


def _lines_at_start(one: Looks, flow: Flow, quantity: Quantity) -> list[Line]:
    if quantity.apart:
        names = dict.fromkeys(step.name for part in flow.passes[:1] for step in part.steps)
        parts: list[tuple[str, Quantity, str | None]] = [
            (f"{one.label} {name}".strip(), quantity, name) for name in names
        ]
    elif quantity is GRADIENT:
        parts = [(one.label or "whole", GRADIENT, None), (f"{one.label} skip".strip(), SKIP, None)]
    else:
        parts = [(one.label or "x", quantity, None)]
    looks = Line(label="", x=(), y=(), colour=one.colour, marker=one.marker)
    return [
        _line(flow, part, flow.training_steps[0], replace(looks, label=label, dash=DASHES[i % len(DASHES)]), only=only)
        for i, (label, part, only) in enumerate(parts)
    ]


def over_training(pairs: Sequence[Pair]) -> list[Group]:
    """For each quantity a panel for each placement on one axis, with a line for each training step."""
    groups = []
    for place, quantity in enumerate((RMS, RATIO, GRADIENT, SKIP, COSINE), start=1):
        lines = [_lines_over_training(flow, quantity) for _, flow in pairs]
        log = (
            quantity.log
            if quantity.log is not None
            else wide(value for each in lines for line in each for value in line.y)
        )
        shown = replace(
            quantity, log=log, unit=f"{quantity.unit}, mean of a layer" if quantity.apart else quantity.unit
        )
        at = 0 if quantity.before else -1
        charts = [_chart(one.title, shown, each, at) for (one, _), each in zip(pairs, lines, strict=True)]
        groups.append(Group(title=quantity.title, plates=plates(shared(charts), f"training-{place}")))
    return groups


def _lines_over_training(flow: Flow, quantity: Quantity) -> list[Line]:
    steps = _thinned(flow.training_steps, len(RAMP))
    ramp = [RAMP[round(i * (len(RAMP) - 1) / max(1, len(steps) - 1))] for i in range(len(steps))]
    looks = [
        Line(label=f"step {step}", x=(), y=(), colour=colour, weight=1.1 + 0.25 * i)
        for i, (step, colour) in enumerate(zip(steps, ramp, strict=True))
    ]
    return [_line(flow, quantity, step, look) for step, look in zip(steps, looks, strict=True)]


def _chart(title: str, quantity: Quantity, lines: Sequence[Line], place: int | None = None) -> Chart:
    """A panel; where `place` is given, what is seen is the value there at the first and the last training step."""
    values = [value for line in lines for value in line.y]
    log = quantity.log if quantity.log is not None else wide(values)
    drawn = [line for line in lines if line.y]
    if place is None:
        seen = "; ".join(_from_to(line, quantity) for line in drawn)
    else:
        where = "At the input" if quantity.before else "After the last layer"
        ends = [drawn[0], *drawn[1:][-1:]] if drawn else []
        seen = f"{where}: " + ", ".join(f"{number(line.y[place])} at {line.label}" for line in ends)
    return Chart(
        title=title,
        seen=f"{seen}." if drawn else "Nothing was measured.",
        lines=drawn,
        x_label="layer",
        y_label=quantity.unit,
        log=log,
        notes=[note for line in drawn for note in missing(line.label, line.y, log)],
    )


def _from_to(line: Line, quantity: Quantity) -> str:
    """Signals run from the input to the output, gradients the other way."""
    first, last = (line.y[-1], line.y[0]) if quantity.before else (line.y[0], line.y[-1])
    return f"{line.label} from {number(first)} to {number(last)}".strip()


def _line(flow: Flow, quantity: Quantity, training_step: int, looks: Line, only: str | None = None) -> Line:
    """Mean, smallest and largest over the seeds, against the layer.

    A step stands at its part of its layer; where the sublayers lie apart, their mean (or the `only` one) stands at it.
    """
    passes = flow.at(training_step)
    length = min((len(one.steps) for one in passes), default=0)
    steps = [one.steps[:length] for one in passes]
    if not length:
        return looks
    if quantity.apart:
        named = [i for i, step in enumerate(steps[0]) if only in (None, step.name)]
        layers = list(dict.fromkeys(steps[0][i].layer for i in named))
        held = [[i for i in named if steps[0][i].layer == layer] for layer in layers]
        places = [float(layer) for layer in layers]
    else:
        held = [[i] for i in range(length)]
        places = _places(steps[0], quantity.before)
    each = [[mean([quantity.of(part[i]) for i in group]) for part in steps] for group in held]
    bands = [band(values) for values in each]
    return replace(
        looks,
        x=places,
        y=[mean(values) for values in each],
        low=[low for low, _ in bands] if len(passes) > 1 else (),
        high=[high for _, high in bands] if len(passes) > 1 else (),
        hollow=[flow.void] * len(each) if quantity.before else (),
    )


def _places(steps: Sequence[StepFlow], before: bool) -> list[float]:
    """Where each step stands on the axis of the layers: layer l takes up what lies between l - 1 and l."""
    layers = [step.layer for step in steps]
    nth = [layers[: i + 1].count(layer) for i, layer in enumerate(layers)]
    return [layer - 1 + (n - before) / layers.count(layer) for layer, n in zip(layers, nth, strict=True)]


def _thinned(steps: Sequence[int], most: int) -> list[int]:
    """The first, the last, and what lies between at equal distances in their order."""
    if len(steps) <= most:
        return list(steps)
    return [steps[round(i * (len(steps) - 1) / (most - 1))] for i in range(most)]
