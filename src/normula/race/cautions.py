"""What a verdict cautions of: what is missing, what was stopped, what is on the edge, what chance can do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from normula.race.bootstrap import SMALLEST
from normula.race.counted import is_halved
from normula.race.field import Field
from normula.race.outcome import MARGIN
from normula.race.words import at, capital, count, init_words, label, listed
from normula.record import Standing, Trial

FEW = 5
"""Seeds with fewer of which an interval leaves chance in."""


def cautions(
    titles: Mapping[str, str],
    found: Sequence[tuple[Field, Sequence[Standing]]],
    trials: Sequence[Trial],
    marked: Mapping[str, str],
    unequal: Sequence[str],
    *,
    weights: bool = True,
) -> Iterable[str]:
    """All of them but for `unfinished`, which stands first.

    Args:
        titles: the contestants by name.
        found: each facet's runs and ranking.
        trials: all runs.
        marked: contestants that are nonstandard, and why.
        unequal: contestants with a learning rate of their own.
        weights: whether the race chose the initial weights.
    """
    yield from _failed(titles, trials)
    yield from _halved(trials)
    yield from _stopped(titles, [field for field, _ in found])
    yield from (f"{titles[name]} is a nonstandard pair: {why}." for name, why in marked.items())
    yield from _edges(titles, found)
    if unequal:
        yield f"{listed([titles[one] for one in unequal])}: a learning rate of its own; not all were tried at the same."
    if weights:
        yield from _weights([field for field, _ in found])
    made = [trial for trial in trials if trial.outcome != "failed"]
    if made:
        yield from _chance(len({trial.seed for trial in made}), made[0].stuck_loss)


def unfinished(trials: Sequence[Trial], planned: int, note: str) -> Iterable[str]:
    """What of the race is missing."""
    if len(trials) < planned:
        why = f" ({note})" if note else ""
        yield f"Not whole: {len(trials)} of {planned} runs are there{why}; what follows is from these alone."
    elif note:
        yield f"{capital(note)}."


def _failed(titles: Mapping[str, str], trials: Sequence[Trial]) -> Iterable[str]:
    """Runs that could not be made, and why."""
    reasons: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.outcome == "failed":
            reasons.setdefault(_first_line(trial.note), []).append(trial)
    for why, of in reasons.items():
        who = listed([titles.get(name, name) for name in dict.fromkeys(trial.name for trial in of)])
        yield f"{count(len(of), 'run')} of {who} failed and {'counts' if len(of) == 1 else 'count'} as nothing: {why}."


def _halved(trials: Sequence[Trial]) -> Iterable[str]:
    halved = sum(is_halved(trial) for trial in trials)
    if halved:
        yield (
            f"{count(halved, 'run')} {'was' if halved == 1 else 'were'} stopped early by successive halving, as other "
            "settings of the same contestant did better by then; each is in the table with its reason."
        )


def _stopped(titles: Mapping[str, str], fields: Sequence[Field]) -> Iterable[str]:
    """Runs that were stopped for their time, and what that does to the comparison."""
    for field in fields:
        if field.at is None:
            continue
        stopped = [
            trial
            for name in field.names
            for trial in field.of(name)
            if trial.outcome == "dropped" and not is_halved(trial)
        ]
        who = listed([titles[name] for name in dict.fromkeys(trial.name for trial in stopped)])
        yield at(
            label(field.facet, [one.facet for one in fields]),
            f"{count(len(stopped), 'run')} of {who} stopped before the end; all are compared by their training loss at "
            f"update {field.at} of {field.steps}, the last that every run has made.",
        )


def _edges(titles: Mapping[str, str], found: Sequence[tuple[Field, Sequence[Standing]]]) -> Iterable[str]:
    """Best settings at the end of the grid; those at the same end of the same facets stand together."""
    facets = [field.facet for field, _ in found]
    ends: dict[tuple[str, str], dict[str, list[str]]] = {}
    for field, rows in found:
        for row in rows:
            for edge in row.edges:
                value = f"{row.lr:g}" if "rate" in edge else str(row.warmup)
                ends.setdefault((edge, value), {}).setdefault(label(field.facet, facets), []).append(titles[row.name])
    for (edge, value), places in ends.items():
        same: dict[str, list[str]] = {}
        for where, names in places.items():
            same.setdefault(f"{listed(names)} {'is' if len(names) == 1 else 'are'}", []).append(where)
        for who, wheres in same.items():
            where = "" if len(wheres) == len(facets) else "; ".join(wheres)
            yield at(where, f"{who} best at the {edge} tried ({value}): a better one may lie beyond.")


def _weights(fields: Sequence[Field]) -> Iterable[str]:
    """That the initial weights may be what decided, where they were not varied."""
    inits = {field.facet.init for field in fields}
    if len(inits) == 1:
        yield (
            f"All of this is with {init_words(inits.pop())}. The initial weights decide as often as the placement "
            "does: race them too (--init)."
        )


def _chance(seeds: int, stuck_loss: float) -> Iterable[str]:
    """What so few seeds and so small a model can show."""
    if seeds == 1:
        yield "With one seed there are no intervals, and chance is not ruled out for any difference."
    elif seeds < FEW:
        yield (
            f"Intervals come from {seeds} seeds alone. Two equal contestants would differ in the same direction with "
            f"every seed in one race of {2 ** (seeds - 1)}, and a difference would then be shown."
        )
    yield (
        "Small models and short runs show what is stable here, not which placement is better in a long run. Brackets "
        f"are bootstrap intervals of 95 % over the seeds; a gap below {SMALLEST} nats is called none; stuck means less "
        f"than {MARGIN} nats better than the frequencies of the symbols alone ({stuck_loss:.2f} nats)."
    )


def _first_line(note: str) -> str:
    return next((line.strip().rstrip(".") for line in note.splitlines() if line.strip()), "no reason was recorded")
