"""Models of the user's own: a function that takes a placement, named as `package.module:function`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from normula.spec import Spec


def factory(name: str) -> Callable[..., Any]:
    """The function of this name, `package.module:function`; modules beside the command are found too.

    Raises:
        ValueError: no such module or function.
    """
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise ValueError(f"a model is named as package.module:function, not {name!r}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(import_module(module), function)
    except ModuleNotFoundError as error:
        raise ValueError(f"there is no module {error.name!r} for {name}; run where it can be imported") from None
    except AttributeError:
        raise ValueError(f"{module} has no {function!r}; a model is named as package.module:function") from None
    if not callable(found):
        raise ValueError(f"{name} is a {type(found).__name__}; a model is made by a function")
    accepted(found, name)
    return found  # type: ignore[no-any-return]


def sources_of(name: str) -> tuple[Path, ...]:
    """The files of the function: that of the module it is named in, and that it was written in, where it is another."""
    modules = dict.fromkeys((name.partition(":")[0], factory(name).__module__))
    files = (getattr(sys.modules[module], "__file__", None) for module in modules if module in sys.modules)
    return tuple(Path(file) for file in files if file is not None and Path(file).is_file())


def made(name: str, spec: Spec) -> Any:
    """The model that the user's function makes for a spec.

    The function is given what it has arguments for: `formula` or `placement` (one of the two it must take), and any
    field of the spec by its name, such as layers, width, heads, vocab, context, norm, init, seed.
    """
    function = factory(name)
    offered = {field: getattr(spec, field) for field in Spec.__slots__} | {
        "placement": spec.placed,
        "formula": str(spec.placed.formula),
    }
    return function(**{argument: offered[argument] for argument in accepted(function, name)})


def accepted(function: Callable[..., Any], name: str) -> tuple[str, ...]:
    """The arguments of a factory.

    Raises:
        ValueError: it takes no placement, or needs something that a race does not have.
    """
    known = {*Spec.__slots__, "formula"}
    parameters = inspect.signature(function).parameters.values()
    for one in parameters:
        if one.name not in known and one.default is one.empty and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL):
            raise ValueError(
                f"{name} needs {one.name!r}, which a race cannot give; it gives {', '.join(sorted(known))}"
            )
    names = tuple(one.name for one in parameters if one.name in known)
    if not {"formula", "placement"} & set(names):
        raise ValueError(f"{name} takes neither formula nor placement, so every contestant would be the same model")
    return names
