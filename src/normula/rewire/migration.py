"""Here lives `migration`: the way of a trained model from its formula to another one, to be gone while it is trained.

At the share t of the way each sublayer is given (1 - t) old + t new of what the two formulas give it, and the stream
after it is (1 - t) old + t new. At 0 the model computes what it did, at 1 what `rewire` makes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from normula.catalog import placement as named
from normula.formula import Formula, Placement
from normula.framework import room
from normula.record.rewiring import Plan
from normula.rewire.between import between
from normula.rewire.errors import RewireError
from normula.rewire.plan import Example, Planned, given, planned
from normula.rewire.proof import prove
from normula.rewire.rewire import copy_of
from normula.rewire.understood import Understood, check_torch, understood


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Migration:
    """A model on its way.

    Attributes:
        model: a module of the model's class, to be trained; norms that are added have gain 1, as in `rewire`.
        plan: of the rewiring, with what it preserves if the way is gone at once.
    """

    model: Any
    plan: Plan
    _old: Understood
    _wanted: Planned

    def at(self, share: float) -> None:
        """Take the model to this share of the way.

        Raises:
            ValueError: it is not from 0 to 1.
        """
        if not 0 <= share <= 1:
            raise ValueError(f"A share of the way is from 0 (the old formula) to 1 (the new one), not {share!r}.")
        room("torch").rewire.go(self.model, float(share))

    def along(self, steps: int) -> Callable[[int, Any], None]:
        """For a trainer's `observe`: goes the way evenly in this many updates, and stays at its end.

        Raises:
            ValueError: there are none.
        """
        if steps < 1:
            raise ValueError(f"The way is gone in at least 1 update, not {steps!r}.")
        return lambda step, _: self.at(min(step / steps, 1.0))

    def finished(self) -> Any:
        """The rewired model with the weights that the model has now; it is read again, as `rewire` does.

        Returns:
            A module of the model's class; `rewiring` is its `Plan`.

        Raises:
            RewireError: it is not read as what was wanted.
        """
        new = copy_of(self._old, self._wanted)
        prove(new, self._old, self._wanted.placement, self._wanted.layers)
        room("torch").rewire.carry(self.model, new)
        new.rewiring = self.plan
        return new


def migration(model: Any, to: str | Formula | Placement, *, example: Example) -> Migration:
    """The way of a model to another placement; the model itself stays as it was.

    Both ends are proved: at its start the new model is run against the old one, with random gains and biases; at its
    end it is read, and must be what was wanted.

    Args:
        model: a PyTorch module that `read` understands.
        to: the wanted placement, by name, formula or as a `Placement`.
        example: arguments of its forward, a tuple or a dictionary.

    Returns:
        The migration, at its start.

    Raises:
        RewireError: it cannot be rewired so, has the placement already, or nothing can stand between the two formulas.
        ValueError: there is no such placement.

    Example:
        >>> import torch
        >>> stack = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
        >>> move = migration(stack, "pre", example=(torch.randn(1, 3, 8),))
        >>> for step in range(10):
        ...     move.at(step / 10)  # then an update of move.model
        >>> move.finished().rewiring.to
        'pre'
    """
    args, kwargs = given(example)
    check_torch(model, "A move by degrees")
    there = understood(model, args, kwargs)
    wanted = planned(there, named(to))
    operation = wanted.plan.operation
    if not (operation.scripts or operation.passing or operation.slots):
        raise RewireError(f"This model has the placement {wanted.placement.name} already; there is nothing to move.")
    moving = copy_of(there, replace(wanted, plan=replace(wanted.plan, operation=between(there, operation))))
    found = Migration(moving, wanted.plan, there, wanted)
    kept, _ = room("torch").rewire.preserved(model, moving, operation, there.args, there.kwargs)
    if kept != "function":
        raise RewireError(
            "A move begins at what the model computes, and its layers written as formulas compute something else here. "
            "Distil from it instead (kind='distil', --migrate distil)."
        )
    found.at(1)
    reading = prove(moving, there, wanted.placement, wanted.layers)
    kept, change = room("torch").rewire.preserved(model, moving, operation, there.args, there.kwargs)
    found.at(0)
    plan = replace(wanted.plan, proof=reading.stages[0].proof, preserved=kept, difference=change)
    return replace(found, plan=plan)
