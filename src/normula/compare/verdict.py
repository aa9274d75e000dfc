"""The verdict in plain words: only what was measured, with the ranges over the seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

from normula.race.outcome import MARGIN
from normula.race.sentences import deciding, learning
from normula.race.words import count, init_words
from normula.record import Contestant, DepthPoint, Flow, Share, Statement, Trial


@dataclass(frozen=True, slots=True)
class _Best:
    """The best point of a placement's grid: mean loss over the seeds, smallest and largest."""

    lr: float
    warmup: int
    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} [{self.low:.2f}, {self.high:.2f}]"


def verdict(
    contestants: Sequence[Contestant],
    trials: Sequence[Trial],
    planned: int,
    shares: Sequence[Share],
    flows: Sequence[Flow],
    depths: Sequence[DepthPoint],
) -> tuple[Statement, ...]:
    """All that the measurements let one say, the headline first."""
    said: list[Statement] = []
    if len(trials) < planned:
        said.append(
            Statement(
                kind="caution",
                text=f"Interrupted: {len(trials)} of {planned} runs were finished; what follows is from these alone.",
            )
        )
    if trials:
        ran = {trial.name for trial in trials}  # after an interrupt some may not have had their turn
        titles = {one.name: one.title for one in contestants if one.name in ran}
        inits = list(dict.fromkeys(trial.init for trial in trials))
        said += [Statement(kind="headline", text=text) for text in learning(titles, trials)]
        said += _outcomes(titles, trials, inits)
        said += _differences(titles, trials, inits)
        said += [Statement(kind="factor", text=text) for text in deciding(shares)]
        said += _warmup(titles, trials)
        said += _edges(titles, trials, inits)
    said += _collapses(contestants, flows)
    said += _depth(contestants, depths)
    if trials:
        said.append(
            Statement(
                kind="caution",
                text=f"Small models and {count(len({t.seed for t in trials}), 'seed')}: this shows what is stable "
                "here, not which placement is better in a long run. Ranges in brackets are the smallest and largest "
                f"over the seeds; stuck means less than {MARGIN} nats better than the byte frequencies alone "
                f"({trials[0].stuck_loss:.2f} nats).",
            )
        )
    return tuple(said)


def _outcomes(titles: dict[str, str], trials: Sequence[Trial], inits: Sequence[str]) -> Iterable[Statement]:
    for init in inits:
        for name, title in titles.items():
            of = _of(trials, name, init)
            if not of:
                continue
            counts = [(word, sum(t.outcome == word for t in of)) for word in ("learned", "stuck", "diverged")]
            text = ", ".join(f"{count} {word}" for word, count in counts if count)
            best = _best(of)
            at = f"; best loss {best} at rate {best.lr:g}, warmup {best.warmup}" if best else ""
            yield Statement(kind="outcome", text=f"{title}, {init_words(init)}: {text} of {len(of)}{at}.")


def _differences(titles: dict[str, str], trials: Sequence[Trial], inits: Sequence[str]) -> Iterable[Statement]:
    """Each at its own best rate and warmup; a difference is shown where the ranges lie apart."""
    for init in inits:
        for first, second in combinations(titles, 2):
            a, b = _best(_of(trials, first, init)), _best(_of(trials, second, init))
            if a is None or b is None:
                continue
            if a.mean > b.mean:
                first, second, a, b = second, first, b, a
            gap = b.low - a.high
            where = f"With {init_words(init)}, each at its best rate and warmup"
            if gap > 0:
                text = (
                    f"{where}, {titles[first]} ends {b.mean - a.mean:.2f} nats below {titles[second]}: {a} against {b}."
                )
                if len({trial.seed for trial in trials}) == 1:
                    text += " With one seed, chance is not ruled out."
            else:
                text = f"{where}, no difference is shown between {titles[first]} {a} and {titles[second]} {b}."
            yield Statement(kind="difference", text=text)


def _warmup(titles: dict[str, str], trials: Sequence[Trial]) -> Iterable[Statement]:
    if len({trial.warmup for trial in trials}) < 2:
        return
    for name, title in titles.items():
        of = [trial for trial in trials if trial.name == name]
        without, warmed = [t for t in of if t.warmup == 0], [t for t in of if t.warmup > 0]
        if not without or not warmed:
            continue
        failed = [sum(t.outcome != "learned" for t in group) for group in (without, warmed)]
        if not any(failed):
            continue
        rates = [f"{count} of {len(group)} runs" for count, group in zip(failed, (without, warmed), strict=True)]
        same = failed[0] * len(warmed) == failed[1] * len(without)
        text = f"{title} fails in {rates[0]} without warmup and in {rates[1]} with"
        yield Statement(kind="factor", text=text + (": warmup makes no difference to that here." if same else "."))


def _edges(titles: dict[str, str], trials: Sequence[Trial], inits: Sequence[str]) -> Iterable[Statement]:
    """A best rate at the end of the grid may have a better one beyond."""
    rates = sorted({trial.lr for trial in trials})
    if len(rates) < 2:
        return
    for init in inits:
        for name, title in titles.items():
            best = _best([t for t in _of(trials, name, init) if t.outcome == "learned"])
            if best is not None and best.lr in (rates[0], rates[-1]):
                end = "lowest" if best.lr == rates[0] else "highest"
                yield Statement(
                    kind="caution",
                    text=f"{title} with {init_words(init)} is best at the {end} rate tried ({best.lr:g}): "
                    "a better one may lie beyond.",
                )


def _collapses(contestants: Sequence[Contestant], flows: Sequence[Flow]) -> Iterable[Statement]:
    titles = {one.name: one.title for one in contestants}
    for one in flows:
        for finding in one.findings:
            if finding.kind in ("token-collapse", "gradient-after-collapse", "not-finite"):
                yield Statement(kind="flow", text=f"{titles.get(one.name, one.name)}: {finding.text}")


def _depth(contestants: Sequence[Contestant], depths: Sequence[DepthPoint]) -> Iterable[Statement]:
    """What depth does to the gradient at initialisation."""
    for one in contestants:
        of = sorted((point for point in depths if point.name == one.name), key=lambda point: point.depth)
        if len(of) < 2 or any(point.void for point in of):
            continue
        first, last = of[0], of[-1]
        if not math.isfinite(last.input_gradient[0]):
            continue
        yield Statement(
            kind="flow",
            text=f"{one.title} at initialisation: of a gradient of 1 at the output, {first.input_gradient[0]:.2g} "
            f"reaches the input at depth {first.depth} and {last.input_gradient[0]:.2g} at depth {last.depth}; the "
            f"skip path alone carries {first.skip_gradient[0]:.2g} and {last.skip_gradient[0]:.2g}.",
        )


def _of(trials: Sequence[Trial], name: str, init: str) -> list[Trial]:
    return [trial for trial in trials if trial.name == name and trial.init == init]


def _best(trials: Sequence[Trial]) -> _Best | None:
    """The point of the grid with the lowest mean loss; a run that ended early counts as infinitely bad."""
    points: dict[tuple[float, int], list[float]] = {}
    for trial in trials:
        points.setdefault((trial.lr, trial.warmup), []).append(trial.loss if math.isfinite(trial.loss) else math.inf)
    finite = {point: losses for point, losses in points.items() if all(map(math.isfinite, losses))}
    if not finite:
        return None
    (lr, warmup), losses = min(finite.items(), key=lambda item: fmean(item[1]))
    return _Best(lr, warmup, fmean(losses), min(losses), max(losses))
