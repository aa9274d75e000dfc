"""Flags that speak of norms and residuals, and the same model with one of them the other way round.

Names only choose which flags are tried; what a flag does is then seen in what the two models compute.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from normula.torch.sources.fields import Fields, named_parts

if TYPE_CHECKING:
    from normula.torch.sources.source import Source

SPEAKS: Final = re.compile(
    r"norm|(?:^|_)ln(?:_|$)|residual|placement|parallel_(?:attn|attention|block|layer)|skip_connection"
)
OTHERS: Final = re.compile(r"loss|topk|prob|freeze|init|rescale|32|sync|affine|router|bias")
"""Flags of training, of numbers and of parameters: the forward in evaluation mode need not show them."""

MOST: Final = 8
"""How many flags of one model are tried: each costs a model and a pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A flag of a model: its value, and the model made with the other one."""

    name: str
    value: bool
    flipped: Callable[[], Source]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flagged:
    """A model, and its flags."""

    source: Source
    flags: tuple[Flag, ...]


def flagged(source: Source, values: Mapping[str, bool], flip: Callable[[str], Source]) -> Flagged | None:
    """A model with the flags that are worth trying; None where it has none."""
    names = [name for name in values if SPEAKS.search(name.lower()) and not OTHERS.search(name.lower())][:MOST]
    flags = [Flag(name=name, value=values[name], flipped=lambda name=name: flip(name)) for name in names]  # type: ignore[misc]
    return Flagged(source=source, flags=tuple(flags)) if flags else None


def config_flags(config: Any) -> dict[str, bool]:
    """The truth values in a config and in the configs inside it, those by the path of their part."""
    return {label: fields[name] for label, fields, name in _found(config)}


def with_flipped(config: Any, flag: str) -> Any:
    """A copy of a config with one flag the other way round."""
    other = copy.deepcopy(config)
    for label, fields, name in list(_found(other)):
        if label == flag:
            fields[name] = not fields[name]
    return other


def keyword_flags(factory: Callable[..., Any]) -> dict[str, bool]:
    """The truth values that are defaults of a function's arguments."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except ValueError:  # some builtins have no signature
        return {}
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {one.name: one.default for one in parameters if one.kind in by_name and isinstance(one.default, bool)}


def _found(config: Any) -> Iterator[tuple[str, Fields, str]]:
    for path, fields in named_parts(config):
        for name, value in fields.items():
            if isinstance(value, bool):
                yield f"{path}{name}", fields, name
