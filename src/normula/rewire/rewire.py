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
from normula.rewire.roles import initials
from normula.rewire.understood import Understood, understood


def rewire(
    model: Any,
    to: str | Formula | Placement,
    *,
    example: Example,
    accept_inexact: bool = False,
    reinit: str | None = None,
    seed: int = 0,
) -> Any:
    """A copy of a model that does what another placement says; the model itself stays as it was.

    The copy runs the model's own code. Its norms are moved, added or removed: names of parameters that stay are kept.
    It is read again before it is returned, and every layer's formula, and what stands before and after each stack, must
    be the wanted one, replayed.

    Args:
        model: a module of PyTorch, Linen, NNX or Equinox, or a function of its weights, that `read` understands.
        to: the wanted placement, by name, formula or as a `Placement`.
        example: arguments of its forward, a tuple or a dictionary; for Linen and functions with the weights among them.
        accept_inexact: whether a model that computes something else with these weights is wanted all the same.
        reinit: a rule by which all weights are drawn anew, to train from the start; None keeps them.
        seed: of those draws.

    Returns:
        A module of the model's class; for JAX a pytree of the weights, called without them. `rewiring` is its `Plan`,
        with what is preserved and how far its outputs on the example are from those of the model.

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
    return rewired(there, planned(there, named(to)), accept_inexact=accept_inexact, reinit=reinit, seed=seed)


def rewired(
    model: Understood, found: Planned, *, accept_inexact: bool, reinit: str | None = None, seed: int = 0
) -> Any:
    """The copy that a plan describes, proved and measured.

    Raises:
        RewireError: the proof fails, or its function is another and that was not accepted.
    """
    operation = found.plan.operation
    if reinit is not None and model.framework == "flax":
        raise RewireError(
            "The weights of a model of JAX are drawn anew by its own code, not by a rule. Rewire it without reinit, or "
            "build one with normula.build, which takes init."
        )
    starts = None if reinit is None else initials(model, reinit, found.placement)
    new = copy_of(model, found)
    reading = prove(new, model, found.placement, found.layers)
    plan = replace(found.plan, proof=reading.stages[0].proof)
    if starts is not None:
        there = room("torch").rewire
        made = (*(f"{norm.path}." for norm in operation.norms), *(gain.path for gain in operation.gains))
        left = [name for name in there.reinitialise(new, starts, operation.bare, seed) if not name.startswith(made)]
        told = (f"no rule speaks of {', '.join(left)}; they keep their values",) if left else ()
        new.rewiring = replace(plan, preserved="nothing", notes=(*plan.notes, *told))
        return new
    kept, change = model.preserved(new, operation)
    plan = replace(plan, preserved=kept, difference=change)
    if kept != "function" and not accept_inexact:
        raise RewireError(_inexact(plan, model.framework))
    new.rewiring = plan
    return new


def copy_of(model: Understood, found: Planned) -> Any:
    """The copy that a plan describes, not yet proved.

    Raises:
        RewireError: the model holds no weights, or a norm cannot be made.
    """
    if not model.real:
        raise RewireError(
            "A model on the meta device holds no weights, and what a rewiring does to them cannot be proved. "
            "Look at the plan (dry run), or give the model weights first."
        )
    try:
        return model.operated(found.plan.operation)
    except ValueError as error:
        raise RewireError(f"{found.placement.name} needs norms that cannot be made: {error}.") from error


def _inexact(plan: Plan, framework: str) -> str:
    anew = ", or reinit='xavier' (--reinit xavier) to train it from the start" if framework == "torch" else ""
    only = " (it is only while every gain is 1 and every bias 0)" if "initial" in plan.preserved else ""
    return (
        f"{plan.to} is not equivalent to what this model computes{only}: on the example its outputs change by "
        f"{plan.difference:.2g} of their size, and weights that were trained under the old formula do not fit the new "
        f"one. Pass accept_inexact=True (--accept-inexact) to have it all the same{anew}."
    )
