"""The page of a model: what it does to its residual stream, as it was read, and how signal and gradient fare in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from markupsafe import Markup

from normula.catalog.lookup import entry
from normula.formula import Formula
from normula.record import Flow, StepFlow
from normula.record.reading import Reading, ReadNorm, ReadStage
from normula.report.page import MOST_ROWS, templates
from normula.report.plates import plates
from normula.report.reading import PROOFS, norm_line
from normula.report.signal import at_start
from normula.report.svg import drawing_svg
from normula.report.theme import MARKERS, SERIES
from normula.report.words import count, listed, number


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looks:
    """Of the one model of the page."""

    label: str = ""
    colour: str = SERIES[0]
    marker: str = next(iter(MARKERS))


NUMBERS: Final[tuple[tuple[str, Callable[[StepFlow], float]], ...]] = (
    ("RMS before", lambda step: step.rms_before),
    ("RMS after", lambda step: step.rms_after),
    ("Branch RMS", lambda step: step.branch_rms),
    ("Branch / skip", lambda step: step.ratio),
    ("Gradient", lambda step: step.gradient),
    ("Skip path alone", lambda step: step.skip_gradient),
    ("Token cosine", lambda step: step.token_cosine),
    ("Largest", lambda step: step.largest),
)
"""Of every step: what stands over the column, and its value."""


def model_page(
    reading: Reading,
    title: str,
    *,
    note: str = "",
    flow: Flow | None = None,
    without_flow: str = "",
    weights: str = "",
    command: str = "",
) -> str:
    """A reading and what was measured on it as one page that needs no network and no script.

    Args:
        reading: the record.
        title: what the model is called.
        note: what was done to read it, in one line.
        flow: the measurements; None where there are none.
        without_flow: why there are none, and how to get them.
        weights: that were measured, in words.
        command: what to type to make the page again.

    Returns:
        HTML with its styles, drawings and charts inside, in light and in dark.
    """
    measured = flow if flow is not None and any(one.steps for one in flow.passes) else None
    return (
        templates()
        .get_template("reading.html.j2")
        .render(
            reading=reading,
            title=title,
            note=note,
            headline=headline(reading),
            around=[_around(reading, place) for place in range(len(reading.stages))],
            stages=[(stage, _names(stage), _proof(stage)) for stage in reading.stages],
            drawings=_drawings(reading.stages),
            norm=norm_line(reading),
            norms=_norm_groups(reading.norms),
            sublayers=_sublayer_line(reading),
            flow=flow,
            measured=measured,
            charts=plates(at_start([(_Looks(), measured)]), "flow") if measured else [],
            numbers=_number_rows(measured) if measured else [],
            columns=[name for name, _ in NUMBERS],
            parameters=measured.passes[0].weights if measured else (),
            without_flow=without_flow,
            command=command,
            settings=_settings(flow, weights) if flow else [],
        )
    )


def headline(reading: Reading) -> str:
    """What the model is, in one sentence.

    >>> from normula.record.reading import ReadStage
    >>> stage = ReadStage(where="h", layers=12, block="x = x + attn(norm(x)); x = x + mlp(norm(x))", names=("pre",))
    >>> headline(Reading(stages=(stage,), embed_norms=(False,), final_norms=(True,), norm="LayerNorm", eps=1e-5,
    ...                  inner=(), norms=(), sublayers=(), findings=()))
    '12 layers of Pre-LN, with a norm after the last.'
    """
    if not reading.stages:
        return "No residual stream was found in this model."
    parts = [f"{count(stage.layers, 'layer')} {_called(stage)}" for stage in reading.stages]
    ends = [
        *(["before the first"] if reading.embed_norm else []),
        *(["after the last"] if reading.final_norm else []),
    ]
    if all(not stage.known for stage in reading.stages):
        return f"{listed(parts)}."
    return (
        f"{listed(parts)}, with {'a norm ' + listed(ends) if ends else 'no norm before the first or after the last'}."
    )


def _called(stage: ReadStage) -> str:
    if not stage.known:
        return "that are not understood" if stage.layers > 1 else "that is not understood"
    return f"of {entry(stage.names[0]).title}" if stage.names else "of a placement without a known name"


def _around(reading: Reading, place: int) -> str:
    parts = [
        *(["before"] if reading.embed_norms[place] else []),
        *(["after"] if reading.final_norms[place] else []),
    ]
    return listed(parts) or "none"


def _names(stage: ReadStage) -> str:
    titles = [entry(name).title for name in stage.names]
    return ", ".join(titles) or ("no known name" if stage.known else "not understood")


def _proof(stage: ReadStage) -> str:
    return PROOFS.get(stage.proof, stage.proof) if stage.known else "unknown, and so not said"


def _drawings(stages: Sequence[ReadStage]) -> list[tuple[str, Markup]]:
    """A drawing for each formula that is known, once."""
    found = []
    for block in dict.fromkeys(stage.block for stage in stages if stage.known):
        drawing = drawing_svg(Formula(block).svg())
        if drawing is not None:
            found.append((block, Markup(drawing)))  # checked element by element there
    return found


def _norm_groups(norms: Sequence[ReadNorm]) -> list[tuple[str, str, str, int, Sequence[ReadNorm]]]:
    """Norms of one site, kind and epsilon together."""
    groups: dict[tuple[str, str, str], list[ReadNorm]] = {}
    for norm in norms:
        groups.setdefault((norm.site, norm.kind, f"{norm.eps:g}"), []).append(norm)
    return [(*key, len(members), members[:MOST_ROWS]) for key, members in groups.items()]


def _sublayer_line(reading: Reading) -> str:
    kinds = dict.fromkeys(one.kind for one in reading.sublayers)
    return ", ".join(f"{sum(one.kind == kind for one in reading.sublayers)} × {kind}" for kind in kinds)


def _number_rows(flow: Flow) -> list[tuple[int, str, list[str]]]:
    """Of each step the means over the seeds."""
    passes = flow.passes
    return [
        (step.layer, step.name, [_mean([of(one.steps[place]) for one in passes]) for _, of in NUMBERS])
        for place, step in enumerate(passes[0].steps[:MOST_ROWS])
    ]


def _mean(values: Sequence[float]) -> str:
    mean = fmean(values)
    return "–" if math.isnan(mean) else number(mean)


def _settings(flow: Flow, weights: str) -> list[tuple[str, str]]:
    """How it was measured."""
    where = flow.environment
    probes = {
        "loss": "a loss, of what the model returns",
        "random": "a random direction of length 1 in the output",
        "sum": "the sum of the output",
    }
    passes = flow.passes
    rows = [("weights", weights)] if weights else []
    rows.append(("what is differentiated", probes.get(flow.probe, flow.probe)))
    if flow.probe == "random":
        rows.append(("passes", f"{len(passes)}, with seeds {listed([str(one.seed) for one in passes])}"))
    if flow.probe == "loss" and passes:
        rows.append(("loss", number(passes[0].loss, 5)))
    if math.isfinite(flow.identity):
        rows.append(("stream after, less a × before + branch", f"{number(flow.identity, 1)} of its largest number"))
    rows.append(("versions", ", ".join([f"Python {where.python}", *(f"{k} {v}" for k, v in where.versions.items())])))
    rows.append(("machine", f"{where.machine}, {where.device}"))
    return rows
