"""Here lives the page of a comparison: its sections put together and set by the templates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from normula.record import Comparison, Flow, Statement
from normula.report import measured, signal, theme, training
from normula.report.contestants import Shown, shown
from normula.report.depth import depth_groups
from normula.report.plates import bar_plate, plates
from normula.report.popular import popular
from normula.report.runs import grid
from normula.report.svg import drawing_svg
from normula.report.words import SYMBOLS, capital, count, init_words, listed, nats, number, plain

KINDS = {
    "headline": "What was found",
    "outcome": "Outcomes",
    "difference": "Differences",
    "factor": "What decided",
    "flow": "Signal and gradient",
    "caution": "Take care",
}
"""Kinds of statements, in their order on the page; a kind that is not here comes last, under its own name."""
MOST_ROWS = 1000
"""Of a table of raw numbers; the page says how many were left out, and the record has them all."""


def page(comparison: Comparison, *, command: str | None = None) -> str:
    """The whole page; see `normula.report.html`."""
    contestants, runs = shown(comparison.contestants), grid(comparison)
    flows = {flow.name: flow for flow in comparison.flows if flow.passes}
    pairs = [(one, flows[one.name]) for one in contestants if one.name in flows]
    bars = training.share_bars(comparison.shares)
    return (
        templates()
        .get_template("comparison.html.j2")
        .render(
            comparison=comparison,
            contestants=contestants,
            titles={one.name: one.title for one in contestants},
            title=_title(contestants),
            lede=_lede(comparison, contestants),
            verdict=_verdict(comparison.verdict),
            drawings={one.name: _drawing(one) for one in contestants},
            runs=runs,
            smoothing=training.smoothing(runs),
            losses=plates(training.loss_charts(contestants, runs), "loss"),
            blocks=training.blocks(contestants, runs) if runs.trials else [],
            shares=bar_plate(bars, "shares", "Shares of the variance of the final losses", _largest(comparison))
            if bars
            else None,
            start=plates(signal.at_start(pairs), "start") if pairs else [],
            over_training=signal.over_training(pairs) if any(len(flow.training_steps) > 1 for _, flow in pairs) else [],
            flows=comparison.flows,
            first_flow=pairs[0][1] if pairs else None,
            without_flow=[one.title for one in contestants if one.name not in flows],
            depth=depth_groups(contestants, comparison.depths),
            popular=popular(contestants, comparison.popular),
            settings=measured.settings_rows(comparison),
            command=command or measured.command(comparison),
            weights=[(flow, _weights(flow)) for flow in comparison.flows if flow.passes and flow.passes[0].weights],
        )
    )


def templates() -> Environment:
    """The templates of all pages."""
    templates = Environment(
        loader=PackageLoader("normula.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: plain(value) if type(value) is str else value,
    )
    templates.globals |= {
        "light": Markup(theme.variables(dark=False)),
        "dark": Markup(theme.variables(dark=True)),
        "markers": theme.MARKERS,
        "symbols": SYMBOLS,
        "most_rows": MOST_ROWS,
    }
    templates.filters |= {
        "number": number,
        "nats": nats,
        "count": count,
        "listed": listed,
        "init_words": init_words,
        "capital": capital,
    }
    return templates


def _title(contestants: Sequence[Shown]) -> list[str]:
    """In parts: at even places what should stay on one line, at odd ones what joins them."""
    titles = [one.title for one in contestants]
    match titles:
        case [first, second]:
            return [first, " against ", second]
        case [first, second, third]:
            return [first, ", ", second, " and ", third]
        case [] | [_]:
            return titles or ["No placements"]
    return [f"{len(titles)} placements compared"]


def _lede(comparison: Comparison, contestants: Sequence[Shown]) -> str:
    """One line: what was compared."""
    settings = comparison.settings
    who = f"{listed([one.title for one in contestants])}: " if len(contestants) > 3 else ""
    sizes = (
        f"stacks of {count(settings['layers'], 'layer')}, width {settings['width']}"
        if "layers" in settings
        else "stacks"
    )
    name = str(comparison.data.get("name", "a text"))
    steps = f"for {count(settings['steps'], 'step')} " if "steps" in settings else ""
    runs = f"{len(comparison.trials)} of {count(comparison.planned, 'run')} finished"
    return f"{who}{sizes if who else capital(sizes)}, trained {steps}on {name}; {runs}."


def _verdict(statements: Sequence[Statement]) -> list[tuple[str, str, list[str]]]:
    """Kind, heading and sentences, in the order of the page."""
    kinds = [*KINDS, *dict.fromkeys(one.kind for one in statements if one.kind not in KINDS)]
    groups = [(kind, KINDS.get(kind, kind), [one.text for one in statements if one.kind == kind]) for kind in kinds]
    return [group for group in groups if group[2]]


def _drawing(one: Shown) -> Markup | None:
    found = drawing_svg(one.contestant.svg)
    return Markup(found) if found is not None else None  # checked element by element there


def _largest(comparison: Comparison) -> str:
    first = comparison.shares[0]
    if not math.isfinite(first.share):
        return "The shares are not finite."
    small = sum(share.share < training.SMALLEST for share in comparison.shares)
    rest = f" {small} more {'is' if small == 1 else 'are'} below {training.SMALLEST:.1%}." if small else ""
    return f"The largest share, {first.share:.1%}, is that of: {' × '.join(first.factors)}.{rest}"


def _weights(flow: Flow) -> list[tuple[str, list[tuple[float, float]]]]:
    """For each parameter its norm and gradient at the first and the last training step, of the first seed."""
    steps = dict.fromkeys((flow.training_steps[0], flow.training_steps[-1]))
    passes: list[Any] = [flow.at(step)[0] for step in steps]
    of = [{weight.name: weight for weight in one.weights} for one in passes]
    return [(name, [(part[name].norm, part[name].gradient) for part in of if name in part]) for name in of[0]]
