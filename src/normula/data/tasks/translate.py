"""Here lives Translate: a sequence and what to do with it go into an encoder, the answer comes from a decoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from normula.catalog import entries, placement
from normula.data.base import FIELDS, VALIDATION, Drawn
from normula.data.batch import NOT_SCORED, Batch, Ids, Mask
from normula.formula import Placement
from normula.spec import Spec

PADDING, START, END = range(3)

Rule = Callable[[Ids, Ids, Mask], Ids]


def _reversed(symbols: Ids, lengths: Ids, real: Mask) -> Ids:
    places = np.maximum(lengths[:, None] - 1 - np.arange(symbols.shape[1]), 0)
    return np.take_along_axis(symbols, places, axis=1)


def _sorted(symbols: Ids, lengths: Ids, real: Mask) -> Ids:
    return np.sort(np.where(real, symbols, np.iinfo(np.int64).max), axis=1)


def _same(symbols: Ids, lengths: Ids, real: Mask) -> Ids:
    return symbols


RULES: Mapping[str, Rule] = {"reverse": _reversed, "sort": _sorted, "copy": _same}
"""What is done with symbols (B, N) of which the first `lengths` (B,) are real; the rest of an answer does not count."""


@dataclass(frozen=True, slots=True, eq=False)
class Translate(Drawn):
    """Symbols and a first word that says what to do with them: reverse, sort or copy.

    Lengths go from half of the longest up to it. One in the middle is never trained on: `held_out` shows whether what
    was learnt holds for it too, with positions that were all trained.

    Ids: padding, start, end, one for each rule, then the symbols. The decoder is given the answer shifted right, after
    the start; it is to say the answer and the end.

    Args:
        symbols: how many there are.
        context: T and S, one more than the longest sequence.
    """

    symbols: int = 16
    context: int = 9
    name: str = field(default="translate", init=False)
    causal: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        if self.context < 5:
            raise ValueError(
                f"translate needs lengths to train on and one between them to hold out: its context is at least 5, not "
                f"{self.context}"
            )

    @property
    def vocab(self) -> int:  # type: ignore[override]
        return self.first_symbol + self.symbols

    @property
    def first_symbol(self) -> int:
        """The id of the first symbol."""
        return END + 1 + len(RULES)

    @property
    def held_length(self) -> int:
        """The length that is never trained on."""
        return (self._shortest + self.context - 1) // 2

    @property
    def lengths(self) -> tuple[int, ...]:
        """Lengths that are trained on."""
        return tuple(n for n in range(self._shortest, self.context) if n != self.held_length)

    @property
    def _shortest(self) -> int:
        return (self.context - 1) // 2

    def sample(self, random: np.random.Generator, size: int) -> Batch:
        return self._of(random, random.choice(self.lengths, size))

    def key(self, batch: Batch) -> Ids:
        assert batch.source is not None
        return batch.source

    def held_out(self, size: int = 4 * VALIDATION) -> Batch:
        """A fixed batch of the length that is never trained on."""
        return self._of(np.random.default_rng([0, 3]), np.full(size, self.held_length))

    def spec(self, **fields: Any) -> Spec:
        """The spec of a decoder, with an encoder of the same fields.

        Sublayers are those of the encoder; the decoder has `cross` after its attention. A placement that has a form for
        each side, such as DeepNorm, has each on its own side. A formula of a whole layer names `cross` itself and comes
        with `encoder`, the spec of the other side.

        Args:
            fields: of the spec: placement, layers, width, heads, norm, init, seed ...

        Raises:
            ValueError: a field that comes from the task, one that cannot be, or a formula without `cross`.
        """
        own: dict[str, Any] = {name: getattr(self, name) for name in ("vocab", "context")}
        self._check(fields, FIELDS)
        given = fields.pop("encoder", None)
        sides = _sides(placement(fields.pop("placement", "pre")))
        words = tuple(fields.pop("sublayers", ("attn", "mlp")))
        if given is None:
            _check_steps(sides[1])
            without = {name: value for name, value in fields.items() if name != "tied"}
            given = Spec(placement=sides[0], sublayers=tuple(w for w in words if w != "cross"), **own, **without)
        else:
            # positions that a spec without ids does not have
            own_positions = None if given.vocab is None and given.positions == "none" else given.positions
            given = replace(given, **own, causal=False, positions=own_positions)
        return Spec(placement=sides[1], sublayers=_with_cross(words), causal=True, encoder=given, **own, **fields)

    def _of(self, random: np.random.Generator, lengths: Ids) -> Batch:
        size, longest = len(lengths), self.context - 1
        symbols = self.first_symbol + random.integers(0, self.symbols, (size, longest))
        rules = random.integers(0, len(RULES), size)
        real = np.arange(longest) < lengths[:, None]
        answers = np.choose(rules[:, None], [rule(symbols, lengths, real) for rule in RULES.values()])
        source = np.concatenate([END + 1 + rules[:, None], np.where(real, symbols, PADDING)], axis=1)
        inputs = np.concatenate([np.full((size, 1), START), np.where(real, answers, PADDING)], axis=1)
        targets = np.concatenate([np.where(real, answers, NOT_SCORED), np.full((size, 1), NOT_SCORED)], axis=1)
        targets[np.arange(size), lengths] = END
        return Batch(inputs, targets, source=source, source_mask=source != PADDING)


def _with_cross(words: tuple[str, ...]) -> tuple[str, ...]:
    """The sublayers of a decoder: `cross` after its attention, where it has none yet."""
    if "cross" in words:
        return words
    place = words.index("attn") + 1 if "attn" in words else 0
    return (*words[:place], "cross", *words[place:])


def _sides(one: Placement) -> tuple[Placement, Placement]:
    """The placements of encoder and decoder: two of the catalogue where it has both, or the same for both."""
    known = {entry.name: entry.placement for entry in entries()}
    name = one.name.removesuffix("-encoder").removesuffix("-decoder")
    if known.get(one.name) == one and f"{name}-encoder" in known and f"{name}-decoder" in known:
        return known[f"{name}-encoder"], known[f"{name}-decoder"]
    return one, one


def _check_steps(one: Placement) -> None:
    for formula in one.formulas:
        if not formula.is_step:
            raise ValueError(
                f"{formula} describes a whole layer, and translate needs one for each side; write it with f, or with "
                "cross and give encoder= the spec of the other side"
            )
