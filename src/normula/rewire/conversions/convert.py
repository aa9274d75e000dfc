"""`convert`: a model with other weights or another placement that computes what the old one does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any, Final

from normula.formula import Placement
from normula.formula.errors import nearest
from normula.framework import framework_of, room
from normula.record.conversion import Conversion, Move
from normula.rewire.conversions.absorb import absorb
from normula.rewire.conversions.centre import centre
from normula.rewire.conversions.fold import fold, unfold
from normula.rewire.conversions.merge import merge
from normula.rewire.conversions.model import Model, model_of
from normula.rewire.conversions.share import share, unshare
from normula.rewire.conversions.shift import shift, unshift
from normula.rewire.errors import RewireError
from normula.rewire.rewire import rewire

CONVERSIONS: Final[Mapping[str, Callable[[Model], Conversion]]] = {
    "fold": fold,
    "unfold": unfold,
    "centre": centre,
    "shift": shift,
    "unshift": unshift,
    "share": share,
    "unshare": unshare,
    "absorb": absorb,
    "merge": merge,
}

CLOSE: Final = 1e-9
"""How far apart outputs may be in float64, over the largest of them, at random gains and biases."""

Example = Sequence[Any] | Mapping[str, Any]


def convert(model: Any, name: str, *, example: Example, untie: bool = False) -> Any:
    """A new model that computes the same; the old one stays as it was.

    Args:
        model: a PyTorch module that `read` understands.
        name: `fold` norms into the linear maps that read them, or `unfold`; `centre` the stream, so that LayerNorm is
            RMSNorm; `shift` or `unshift` Post-LN; `share` or `unshare` the norms of parallel blocks; `absorb` factors
            on the skip; `merge` norms in succession.
        example: arguments of its forward, a tuple or a mapping.
        untie: whether a matrix that is tied, and must not change with what it is tied to, gets values of its own.

    Returns:
        The model. Before it is returned, a copy with random gains and biases is converted in the same way, and its
        outputs in float64 are within 1e-9 of those before.

    Raises:
        RewireError: the condition of the conversion fails; the message says where.
        ValueError: no conversion has the name.

    Example:
        >>> import torch, normula as nm
        >>> model = nm.build(nm.Spec(placement="pre", layers=2, width=8, heads=2, hidden=16))
        >>> folded = convert(model, "fold", example=(torch.randn(2, 3, 8),))
        >>> folded.layers[0].attn.norm_in.weight.detach().unique()
        tensor([1.])
    """
    return conversion(model, name, example=example, untie=untie)[0]


def conversion(model: Any, name: str, *, example: Example, untie: bool = False) -> tuple[Any, Conversion]:
    """The new model, with what was done and left, and how far apart the two are; see `convert`."""
    there, args, kwargs = _given(model, name, example)
    there.check_convertible(model)
    planned = plan(model, name, example=example, untie=untie)
    apart = _proved(there, model, planned, args, kwargs)
    if not apart <= CLOSE:
        raise RewireError(
            f"{name} is exact by what was read, and a converted copy with random gains is {apart:.1e} from the old "
            "one in float64: something in this model's code sees the change. It is not returned."
        )
    return _converted(model, planned, args, kwargs), replace(planned, apart=apart)


def plan(model: Any, name: str, *, example: Example, untie: bool = False) -> Conversion:
    """What a conversion would do, without doing it.

    Raises:
        RewireError, ValueError: as `convert`.
    """
    there, args, kwargs = _given(model, name, example)
    return CONVERSIONS[name](_read(there, model, args, kwargs, untie))


def _proved(
    there: ModuleType, model: Any, planned: Conversion, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> float:
    """How far a converted copy is from another one, in float64, at random gains and biases."""
    copy = there.randomised(model, planned.fixed)
    wide = there.wide((args, kwargs))
    try:
        there.outputs(copy, *wide)
    except Exception as error:
        raise RewireError(
            f"A conversion is proved in float64, and this model does not run in it: {type(error).__name__} ({error})."
        ) from error
    return float(there.apart(copy, _converted(copy, planned, *wide), *wide))


def _given(model: Any, name: str, example: Example) -> tuple[ModuleType, tuple[Any, ...], dict[str, Any]]:
    if name not in CONVERSIONS:
        raise ValueError(f"a conversion is one of {', '.join(CONVERSIONS)}, not {name!r}{nearest(name, CONVERSIONS)}")
    if framework_of(model) != "torch":
        raise RewireError(
            f"Modules of PyTorch are converted, not {type(model).__module__}.{type(model).__qualname__}. "
            "A model built from a spec in JAX is built in PyTorch, converted there, and its weights are carried over."
        )
    there = room("torch").conversions
    args, kwargs = ((), dict(example)) if isinstance(example, Mapping) else (tuple(example), {})
    return there, args, kwargs


def _read(there: ModuleType, model: Any, args: Sequence[Any], kwargs: Mapping[str, Any], untie: bool) -> Model:
    program = room("torch").capture(model, args, kwargs)
    return model_of(program, there.Values(model), untie=untie)


def _converted(model: Any, planned: Conversion, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    there = room("torch").conversions
    new = there.edited(model, planned.edits)
    if planned.to is None:
        return new
    example = dict(kwargs) if kwargs and not args else tuple(args)
    to = Placement.from_dict(planned.to)
    if there.is_own(new):
        new = there.rebuilt(new, to)
    else:
        new = rewire(new, to, example=example, accept_inexact=True)
    if not planned.order:
        return new
    found = _read(there, new, args, kwargs, untie=False)
    targets = [found.affine(node) for node in found.norms()]
    if len(targets) != len(planned.order):
        raise RewireError(f"The new placement has {len(targets)} norms, and the old one {len(planned.order)}.")
    moves = tuple(Move(target=target, source=one) for target, one in zip(targets, planned.order, strict=True))
    return there.edited(new, moves, source=model)
