"""Modules whose class is replaced by one made of it: they keep parameters, names and hooks, and do something else.

A rewired model may be rewired again: then a class is replaced once more, and its caller says at which depth it calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cache, wraps
from typing import Any, Final

from torch import Tensor, nn

from normula.torch.rewire.move import blended
from normula.torch.rewire.signals import begun, caught, passed
from normula.torch.rewire.stepping import around, stepped


def swap(module: nn.Module, how: str, **fields: Any) -> None:
    """Replace the class of a module, and give it what the new class reads."""
    kind: Any = type(module)
    module.__class__ = swapped(how, kind)
    for name, value in fields.items():
        setattr(module, name, value)


def unswapped(module: nn.Module) -> nn.Module:
    """Give a module its own class back: it does what it did before any rewiring."""
    while "_swapped" in type(module).__dict__:
        module.__class__ = type(module).__dict__["_swapped"][1]
    for name in ("_passes", "_scripts", "_place"):
        module.__dict__.pop(name, None)
    return module


@cache
def swapped(how: str, base: Any) -> Any:
    """The class that is made of another one: one of METHODS."""
    fields = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "__reduce_ex__": _reduced,
        "_swapped": (how, base),
        **METHODS[how](base),
    }
    if hasattr(base, "__deepcopy__"):  # that of a GraphModule makes a module of its own class again
        fields["__deepcopy__"] = _copied
    return type(base.__name__, (base,), fields)


def depth(kind: type, how: str) -> int:
    """How often a class was replaced so."""
    return sum(one.__dict__.get("_swapped", ("",))[0] == how for one in kind.__mro__)


def _passing(base: type[nn.Module]) -> Mapping[str, Any]:
    """A norm that lets pass what callers at some depths give it; `_passes` says for each depth what becomes of it."""
    is_first = not depth(base, "passing")
    normalise = base.forward

    @wraps(base.forward)
    def forward(self: Any, *args: Any, called_at: int = 0, **kwargs: Any) -> Any:
        if called_at in self._passes:
            given: Tensor = args[0] if args else next(iter(kwargs.values()))
            return passed(given, stays=self._passes[called_at])
        return normalise(self, *args, **kwargs) if is_first else normalise(self, *args, called_at=called_at, **kwargs)

    return {"forward": forward}


def _stepping(base: type[nn.Module]) -> Mapping[str, Any]:
    """A module whose layers follow formulas; `_scripts` has one for each time that it was rewired."""
    level, run, call = depth(base, "stepping"), base.forward, base._call_impl

    @wraps(base.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return stepped(self, self._scripts[level], level + 1, run, args, kwargs)

    def _call_impl(self: Any, *args: Any, **kwargs: Any) -> Any:
        return around(self, self._scripts[level], call, args, kwargs)

    return {"forward": forward, "_call_impl": _call_impl}


def _watched(base: type[nn.Module]) -> Mapping[str, Any]:
    """A sublayer whose input and output are caught; `_place` is its number."""

    @wraps(base.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        args = tuple(_caught(one, self._place) for one in args)
        kwargs = {name: _caught(one, self._place) for name, one in kwargs.items()}
        result = base.forward(self, *args, **kwargs)
        if isinstance(result, tuple):
            return type(result)((caught(result[0], place=self._place, is_output=True), *result[1:]))
        return caught(result, place=self._place, is_output=True)

    return {"forward": forward}


def _beginning(base: type[nn.Module]) -> Mapping[str, Any]:
    """A norm whose output a stream begins as."""
    run = base.forward

    @wraps(run)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return begun(run(self, *args, **kwargs))

    return {"forward": forward}


def _fading(base: type[nn.Module]) -> Mapping[str, Any]:
    """A norm of the stream that goes by degrees, or comes so: `_comes` says which."""
    run = base.forward

    @wraps(run)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        given: Tensor = args[0] if args else next(iter(kwargs.values()))
        ways = (lambda: run(self, *args, **kwargs)), (lambda: given)
        return blended(self, *(reversed(ways) if self._comes else ways))

    return {"forward": forward}


METHODS: Final[Mapping[str, Callable[[type[nn.Module]], Mapping[str, Any]]]] = {
    "passing": _passing,
    "stepping": _stepping,
    "watched": _watched,
    "beginning": _beginning,
    "fading": _fading,
}


class Absent(nn.Module):
    """In the place of a norm that was removed: it lets pass what it is given.

    Code that asks for the type or the device of the norm's gain still finds one, of no elements and in no checkpoint.
    """

    def __init__(self, stays: bool, norm: nn.Module) -> None:
        super().__init__()
        self._stays = stays
        for name, parameter in norm.named_parameters():
            if "." not in name:
                self.register_buffer(name, parameter.detach().new_empty(0), persistent=False)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        given: Tensor = args[0] if args else next(iter(kwargs.values()))
        return passed(given, stays=self._stays)


def _caught(value: Any, place: int) -> Any:
    return caught(value, place=place, is_output=False) if isinstance(value, Tensor) else value


def _copied(self: Any, memo: dict[int, Any]) -> Any:
    """A deep copy of a module of a class that was made."""
    copy = memo[id(self)] = object.__new__(type(self))
    copy.__dict__.update(deepcopy(self.__dict__, memo))
    return copy


def _reduced(self: Any, protocol: Any) -> tuple[Any, ...]:
    """A module of a class that was made copies and pickles by how it was made."""
    kind, hows = type(self), []
    while "_swapped" in kind.__dict__:
        how, kind = kind.__dict__["_swapped"]
        hows.append(how)
    return _made, (kind, tuple(reversed(hows))), self.__getstate__()


def _made(kind: Any, hows: tuple[str, ...]) -> nn.Module:
    for how in hows:
        kind = swapped(how, kind)
    made: nn.Module = kind.__new__(kind)
    return made
