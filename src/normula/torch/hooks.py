"""Where people load and save: `load_state_dict`, `from_pretrained`, `save_pretrained`, accelerate; asked first, inside.

The functions are replaced for the whole process while the context lasts, and put back after it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from torch import nn

ACCELERATE: Final = ("accelerate", "accelerate.big_modeling", "accelerate.utils", "accelerate.utils.modeling")
"""Modules that hold `load_checkpoint_in_model`."""


@contextmanager
def hooked(
    on_state: Callable[[nn.Module, Mapping[str, Any]], None],
    on_checkpoint: Callable[[nn.Module, Any], None],
    on_pretrained: Callable[[nn.Module, Any], None],
    on_saved: Callable[[nn.Module, Any], None],
) -> Iterator[None]:
    """Inside, a load is asked about: a refusal is an exception of what is asked.

    Args:
        on_state: before a state dict goes into a module.
        on_checkpoint: before accelerate loads a path into a module.
        on_pretrained: after transformers made a model from a path, before anybody has it.
        on_saved: after transformers saved a model to a path.
    """
    inside = [0]  # loads that other loads make

    def asking(original: Any, before: Any = None, after: Any = None) -> Any:
        @functools.wraps(original)
        def asked(*args: Any, **kwargs: Any) -> Any:
            if inside[0]:
                return original(*args, **kwargs)
            inside[0] += 1
            try:
                if before is not None:
                    before(*args, **kwargs)
                result = original(*args, **kwargs)
                if after is not None:
                    after(result, *args, **kwargs)
            finally:
                inside[0] -= 1
            return result

        return asked

    def state(module: nn.Module, state_dict: Mapping[str, Any], *_: Any, **__: Any) -> None:
        on_state(module, state_dict)

    def checkpoint(model: nn.Module, checkpoint: Any, *_: Any, **__: Any) -> None:
        on_checkpoint(model, checkpoint)

    def pretrained(result: Any, _: Any, path: Any = None, *__: Any, **___: Any) -> None:
        on_pretrained(result[0] if isinstance(result, tuple) else result, path)

    def saved(_: Any, model: nn.Module, save_directory: Any, *__: Any, **___: Any) -> None:
        on_saved(model, save_directory)

    places: list[tuple[Any, str, Any]] = [(nn.Module, "load_state_dict", asking(nn.Module.load_state_dict, state))]
    if find_spec("transformers"):
        kind = import_module("transformers.modeling_utils").PreTrainedModel
        made = asking(kind.__dict__["from_pretrained"].__func__, after=pretrained)
        places += [(kind, "from_pretrained", classmethod(made))]
        places += [(kind, "save_pretrained", asking(kind.save_pretrained, after=saved))]
    if find_spec("accelerate"):
        import_module("accelerate")
        held = [module for name in ACCELERATE if hasattr(module := sys.modules.get(name), "load_checkpoint_in_model")]
        places += [(one, "load_checkpoint_in_model", asking(one.load_checkpoint_in_model, checkpoint)) for one in held]  # type: ignore[union-attr]
    before = [(owner, name, owner.__dict__[name]) for owner, name, _ in places]
    try:
        for owner, name, new in places:
            setattr(owner, name, new)
        yield
    finally:
        for owner, name, old in before:
            setattr(owner, name, old)
