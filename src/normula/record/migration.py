"""Here lives the record of a move: a trained model brought from one formula to another, and what it kept."""

from __future__ import annotations

from dataclasses import dataclass

from normula.record.base import SCHEMA
from normula.spec.recipe import Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Migrated:
    """A trained model that was moved to another placement.

    Losses are in nats, on what the task holds out.

    Attributes:
        kind: `path`: by degrees from the old formula to the new one; `distil`: the new one learns what the
            old one says.
        to: the wanted placement, by name or formula.
        before, after: the formula of each stage.
        task: its name.
        recipe: how the model was trained meanwhile; its seed orders the data.
        move_steps: updates in which the way was gone, or the old model was the teacher; the others are plain training.
        old: loss of the old model.
        blind: of the rewired model with the old model's weights.
        moved: of the new model at the end.
        curve: what each update made smaller, on its own batch: the loss, or the distance from the teacher.
    """

    kind: str
    to: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    task: str
    recipe: Recipe
    move_steps: int
    old: float
    blind: float
    moved: float
    curve: tuple[float, ...]
    schema: int = SCHEMA

    @property
    def recovered(self) -> float | None:
        """The share that is made good of what loading blindly costs, over 1 where the new model is better than the old.

        None where it costs nothing.
        """
        lost = self.blind - self.old
        return (self.blind - self.moved) / lost if lost > 0 else None
