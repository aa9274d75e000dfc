"""A flow in the terminal: one line a layer, then what it shows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean

from rich.console import Console
from rich.table import Table

from normula.record import Flow, Pass, StepFlow

MAX_ROWS = 24
"""More steps than this are thinned out; the last stays."""


def print_flow(flow: Flow, console: Console) -> None:
    """Tables of one training step each (the first and the last), the course over training steps, the findings."""
    console.print(_title(flow), highlight=False, markup=False)
    if not any(one.steps for one in flow.passes):  # of a model that was read, and has no stream that can be measured
        _print_findings(flow, console)
        return
    for step in dict.fromkeys((flow.training_steps[0], flow.training_steps[-1])):
        title = f"training step {step}" if flow.spec else ""
        console.print(_steps(flow.at(step), title, flow.void))
    if len(flow.training_steps) > 1:
        console.print(_course(flow))
    _print_findings(flow, console)


def _title(flow: Flow) -> str:
    """What was measured: the spec of a stack, or the formulas that were read."""
    seeds = ", ".join(str(one.seed) for one in flow.at(flow.training_steps[0])) if flow.passes else "none"
    how = f"probe {flow.probe}, mean over seeds {seeds}"
    if flow.spec:
        spec = flow.spec
        sizes = f"{spec['layers']} layers, width {spec['width']}, {spec['norm']}, init {spec['init']}"
        return f"{spec['placement']['formula']}   {sizes}; {how}"
    stages = [f"{stage['layers']} x  {stage['block']}" for stage in flow.reading.get("stages", ())]
    return "\n".join([*stages, how])


def _print_findings(flow: Flow, console: Console) -> None:
    marks = {"void": "VOID", "warning": "!", "note": "-"}
    for finding in flow.findings:
        text = finding.text.removeprefix("Void: ")
        console.print(f"{marks[finding.weight]} {text}", highlight=False, markup=False)
    for read in flow.reading.get("findings", ()):
        console.print(f"! Read: {read['evidence']}. To do: {read['remedy']}.", highlight=False, markup=False)


def _steps(passes: Sequence[Pass], title: str, void: bool) -> Table:
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    gradient = "gradient (void)" if void else "gradient"
    for name in ("layer", "step"):
        table.add_column(name)
    for name in ("RMS", "branch/skip", gradient, "skip alone", "token cosine"):
        table.add_column(name, justify="right")
    count = len(passes[0].steps)
    every = max(1, math.ceil(count / MAX_ROWS))
    for place in range(count):
        if place % every != every - 1 and place != count - 1:
            continue
        first = passes[0].steps[place]

        def mean(value: Callable[[StepFlow], float], place: int = place) -> str:
            return _number(fmean(value(one.steps[place]) for one in passes))

        table.add_row(
            str(first.layer),
            first.name,
            mean(lambda s: s.rms_after),
            mean(lambda s: s.ratio),
            mean(lambda s: s.gradient),
            mean(lambda s: s.skip_gradient),
            mean(lambda s: s.token_cosine),
        )
    return table


def _course(flow: Flow) -> Table:
    table = Table(title="over training", title_justify="left", box=None, pad_edge=False)
    for name in ("step", "loss", "gradient at the input", "token cosine, last layer", "RMS, last layer"):
        table.add_column(name, justify="right")
    for step in flow.training_steps:
        passes = flow.at(step)
        table.add_row(
            str(step),
            _number(fmean(one.loss for one in passes)),
            _number(fmean(one.input_gradient for one in passes)),
            _number(fmean(one.steps[-1].token_cosine for one in passes)),
            _number(fmean(one.steps[-1].rms_after for one in passes)),
        )
    return table


def _number(value: float) -> str:
    if math.isnan(value):
        return "-"
    if value and not 1e-3 <= abs(value) < 1e4:
        return f"{value:.1e}"
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.1f}"
