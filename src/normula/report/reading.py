"""A reading shown in the terminal, and how its parts are said."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding

from normula.record.reading import Reading

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
        say(f"norm {norm_line(reading)}   inside sublayers: {', '.join(reading.inner) or 'nothing'}", 2)
    for finding in reading.findings:
        say(f"! {finding.evidence}", 2)
        say(finding.remedy, 4)


def stage_line(reading: Reading, place: int) -> str:
    """Names, norms around the stage, proof."""
    stage = reading.stages[place]
    parts = [", ".join(stage.names) or ("no known name" if stage.known else "not understood")]
    parts += [f"embedding norm {_yes(reading.embed_norms[place])}", f"final norm {_yes(reading.final_norms[place])}"]
    parts += [f"streams {', '.join(stage.streams)}"] if stage.streams else []
    parts += [f"at the end {stage.closing}"] if stage.closing else []
    parts += [f"constants {', '.join(f'{one:g}' for one in stage.constants)}"] if stage.constants else []
    return " · ".join([*parts, *([PROOFS.get(stage.proof, stage.proof)] if stage.known else [])])


def norm_line(reading: Reading) -> str:
    """The kind of the norms on the stream, with their epsilon."""
    return reading.norm if reading.eps is None else f"{reading.norm}, epsilon {reading.eps:g}"


def _yes(value: bool) -> str:
    return "yes" if value else "no"
