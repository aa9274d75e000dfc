"""What weights may have been trained with: the model with other flags, candidates of the user, and rewired copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Final

from normula.catalog import placement
from normula.formula import Formula, Placement
from normula.framework import room
from normula.record.stamp import StampedStage
from normula.rewire import rewire

Opening = Callable[[], AbstractContextManager[Any]]

REWIRED: Final = ("post", "pre", "normalised-residual")
"""Placements with one norm for each sublayer: weights of one fit the others, and only behaviour tells them apart."""


def flagged(model: Any, others: Mapping[str, Any] | None) -> Iterator[tuple[str, Opening]]:
    """A name and what opens it: the model as it is, with each flag the other way round, and those of the user."""
    yield from room("torch").variants.variants(model)
    for name, one in (others or {}).items():
        yield name, lambda one=one: nullcontext(one)  # type: ignore[misc]


def rewired(
    model: Any, stages: Sequence[StampedStage], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, Opening]]:
    """The same for copies of a model whose norms stand elsewhere; the model is not touched."""
    example = dict(kwargs) if kwargs else tuple(args)
    for name, wanted in _wanted(stages):
        yield (
            name,
            lambda wanted=wanted: nullcontext(rewire(model, wanted, example=example, accept_inexact=True)),  # type: ignore[misc]
        )


def _wanted(stages: Sequence[StampedStage]) -> Iterator[tuple[str, Placement]]:
    """Each placement with its own norms before and after the layers, with those of the model there, and with none."""
    nothing, norm = Formula("x"), Formula("norm(x)")
    before = norm if any(stage.embed_norm for stage in stages) else nothing
    after = norm if any(stage.final_norm for stage in stages) else nothing
    for name in REWIRED:
        usual = placement(name)
        kept = replace(usual, embed=before, final=after)
        bare = replace(usual, embed=nothing, final=nothing)
        yield f"rewired as {name}", usual
        if kept != usual:
            yield f"rewired as {name}, ends kept", kept
        if bare not in (usual, kept):
            yield f"rewired as {name}, without ends", bare
