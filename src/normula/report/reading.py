"""A reading shown: in the terminal, and as an offline page with its drawings."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup
from rich.console import Console
from rich.padding import Padding

from normula.formula import Formula
from normula.record.reading import Reading, ReadNorm, ReadStage
from normula.report.page import templates
from normula.report.svg import drawing_svg

PROOFS = {
    "replayed": "proved: replayed on real tensors",
    "replayed on a twin": "proved on a smaller twin: this model holds no weights",
    "not replayed": "not replayed",
    "failed": "not proved: its replay gave another stream",
}
"""What a stage's proof is called."""


def print_reading(reading: Reading, title: str, console: Console) -> None:
    """The stages, the norms, what is inside the sublayers, the findings."""

    def say(text: str, indent: int = 0) -> None:
        console.print(Padding(text, (0, 0, 0, indent)), highlight=False, markup=False)

    say(title)
    if not reading.stages:
        say("no residual stream found", 2)
    for place, stage in enumerate(reading.stages):
        say(f"{stage.where or 'stack'}  {stage.layers} x  {stage.block}", 2)
        say(stage_line(reading, place), 4)
        if stage.seen:
            say(f"seen: {stage.seen}", 4)
    if reading.stages:
        say(f"norm {reading.norm}{_eps(reading)}   inside sublayers: {', '.join(reading.inner) or 'nothing'}", 2)
    for finding in reading.findings:
        say(f"! {finding.evidence}", 2)
        say(finding.remedy, 4)


def stage_line(reading: Reading, place: int) -> str:
    """Names, norms around the stage, proof."""
    stage = reading.stages[place]
    parts = [", ".join(stage.names) or ("no known name" if stage.known else "not understood")]
    parts += [f"embedding norm {_yes(reading.embed_norms[place])}", f"final norm {_yes(reading.final_norms[place])}"]
    parts += [f"constants {', '.join(f'{one:g}' for one in stage.constants)}"] if stage.constants else []
    return " · ".join([*parts, *([PROOFS.get(stage.proof, stage.proof)] if stage.known else [])])


def reading_page(reading: Reading, title: str, note: str = "") -> str:
    """The page of a reading: it needs no network and no script."""
    return (
        templates()
        .get_template("reading.html.j2")
        .render(
            reading=reading,
            title=title,
            note=note,
            stages=[(stage, stage_line(reading, place), _drawing(stage)) for place, stage in enumerate(reading.stages)],
            norms=_norm_rows(reading.norms),
            eps=_eps(reading),
        )
    )


def _drawing(stage: ReadStage) -> Markup | None:
    """A drawing of a stage's formula, where it is known."""
    found = drawing_svg(Formula(stage.block).svg()) if stage.known else None
    return None if found is None else Markup(found)  # checked element by element there


def _norm_rows(norms: Sequence[ReadNorm]) -> list[tuple[str, str, str, float, int]]:
    return [(one.path or "(the model itself)", one.site, one.kind, one.eps, one.calls) for one in norms]


def _eps(reading: Reading) -> str:
    return "" if reading.eps is None else f", epsilon {reading.eps:g}"


def _yes(value: bool) -> str:
    return "yes" if value else "no"
