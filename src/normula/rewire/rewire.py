"""`rewire`: a model that exists, with another placement."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from normula.catalog import placement as named
from normula.formula import Formula, Placement
from normula.framework import room
from normula.record.rewiring import Plan
from normula.rewire.errors import RewireError
from normula.rewire.plan import Example, Planned, given, planned
from normula.rewire.proof import prove
from normula.rewire.understood import Understood, understood


def rewire(
    model: Any, to: str | Formula | Placement, *, example: Example, accept_inexact: bool = False
) -> Any:
    """A copy of a model that does what another placement says; the model itself stays as it was.

    The copy runs the model's own code. Its norms are moved, added or removed: names of parameters that stay are kept.
    It is read again before it is returned, and every layer's formula, and what stands before and after each stack, must
    be the wanted one, replayed.

    Args:
        model: a PyTorch module that `read` understands.
        to: the wanted placement, by name, formula or as a `Placement`.
        example: arguments of its forward, a tuple or a dictionary.
        accept_inexact: whether a model that computes something else with these weights is wanted all the same.

    Returns:
        A module of the model's class; `rewiring` is its `Plan`, with what is preserved and how far its outputs on the
        example are from those of the model.

    Raises:
        RewireError: it cannot be done, or changes what the model computes and that was not accepted.
        ValueError: there is no such placement.

    Example:
        >>> import torch
        >>> stack = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
        >>> new = rewire(stack, "pre", example=(torch.randn(1, 3, 8),), accept_inexact=True)
        >>> new.rewiring.preserved
        'parameters'
    """
    args, kwargs = given(example)
    there = understood(model, args, kwargs)
    return rewired(there, planned(there, named(to)), accept_inexact=accept_inexact)


def rewired(model: Understood, found: Planned, *, accept_inexact: bool) -> Any:
    """The copy that a plan describes, proved and measured.

    Raises:
        RewireError: the proof fails, or its function is another and that was not accepted.
    """
    if not model.real:
        raise RewireError(
            "A model on the meta device holds no weights, and what a rewiring does to them cannot be proved. "
            "Look at the plan (dry run), or give the model weights first."
        )
    there = room("torch").rewire
    new = there.operated(model.model, found.plan.operation)
    reading = prove(new, model, found.placement, found.layers)
    kept, change = there.preserved(model.model, new, found.plan.operation, model.args, model.kwargs)
    done = replace(found.plan, preserved=kept, difference=change, proof=reading.stages[0].proof)
    if kept != "function" and not accept_inexact:
        raise RewireError(_inexact(done))
    new.rewiring = done
    return new


def _inexact(plan: Plan) -> str:
    only = " (only while every gain is 1 and every bias 0 it is the same)" if "initial" in plan.preserved else ""
    return (
        f"{plan.to} is not equivalent to what this model computes{only}: on the example its outputs change by "
        f"{plan.difference:.2g} of their size, and weights that were trained under the old formula do not fit the new "
        "one. Pass accept_inexact=True (--accept-inexact) to have it all the same."
    )
