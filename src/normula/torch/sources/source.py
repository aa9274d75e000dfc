"""From what a user types to a model and inputs that it runs with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from normula.formula.errors import nearest
from normula.torch.sources.ask import Ask, as_asks
from normula.torch.sources.errors import SourceError, first_line, raised_at
from normula.torch.sources.flags import Flagged, config_flags, flagged, keyword_flags, with_flipped

WEIGHTS = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".joblib")
"""Files that may be pickles, and pickles run code when they are loaded."""
KINDS = "hf:NAME, timm:NAME, package.module:factory or FILE.pt2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A model and the arguments of one forward.

    Attributes:
        model: a module in evaluation mode, or an exported program.
        args, kwargs: the arguments of its forward, on the device of its parameters.
        title: what the user typed, short.
        note: what was done that the user should know, in one line; may be empty.
        twin: where `model` holds no weights (meta tensors), a tiny model of the same structure that has some.
        weighed: where `model` holds no weights and is not large, what makes it with random ones.
        flagged: where it has flags that speak of norms or residuals, a small model of the same structure with them.
    """

    model: nn.Module | torch.export.ExportedProgram
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    title: str
    note: str = ""
    twin: Source | None = None
    weighed: Callable[[], Source] | None = None
    flagged: Flagged | None = None


def source(text: str, inputs: Mapping[str, Any] | None = None, *, tiny: bool = False) -> Source:
    """The model that a text names, with example inputs.

        >>> found = source("torch.nn:Identity", {"input": (2, 8)})
        >>> found.title, found.kwargs["input"].shape
        ('torch.nn:Identity', torch.Size([2, 8]))

    Args:
        text: `hf:NAME` (a model type of transformers, a config.json, a folder with one, a name on the hub),
            `timm:NAME`, `package.module:factory` (called without arguments; it returns a module, or a module and its
            inputs), or `FILE.pt2` (a program saved by torch.export).
        inputs: by name of the forward's argument, a shape, or what `parse_input` makes; they replace what is guessed.
        tiny: of a transformers model, and of a large one of timm, only the tiny twin.

    Raises:
        SourceError: the text leads to no model, or the inputs cannot be guessed; the message says what to pass.
        ImportError: transformers or timm is needed and missing; the message says how to install it.
    """
    asks = as_asks(inputs)
    text = text.strip()
    kind, _, rest = text.partition(":")
    if not text or (kind in ("hf", "timm") and not rest):
        raise SourceError(f"a model is given as {KINDS}, not {text!r}")
    if kind == "hf":
        from normula.torch.sources.hf import from_hf

        return from_hf(rest, asks, tiny=tiny)
    if kind == "timm":
        from normula.torch.sources.timm import from_timm

        return from_timm(rest, asks, tiny=tiny)
    suffix = Path(text).suffix.lower()
    if suffix == ".pt2":
        from normula.torch.sources.program import from_program

        return from_program(Path(text), asks)
    if suffix in (*WEIGHTS, ".safetensors"):
        raise SourceError(
            f"{text} holds weights, not a model, and pickles are never loaded; "
            f"pass the model's config as hf:config.json, a factory as package.module:function, or a .pt2 program"
        )
    if rest and kind.replace(".", "").isidentifier() and rest.replace(".", "").isidentifier():
        return _from_factory(text, kind, rest, asks)
    raise SourceError(f"a model is given as {KINDS}, not {text!r}{_meant(text)}")


def _meant(text: str) -> str:
    if Path(text).suffix == ".json" or Path(text).is_dir():
        return f"; did you mean 'hf:{text}'?"
    kind, colon, rest = text.partition(":")
    return nearest(kind, ("hf", "timm")).replace("'?", f":{rest}'?") if colon else f"; did you mean 'hf:{text}'?"


def from_factory(text: str) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]] | None:
    """What a function `package.module:factory` makes, and the inputs that it returned; none are guessed.

    Returns:
        None for a text that names a model in another way.

    Raises:
        SourceError: there is no such function, or it fails.
    """
    kind, _, rest = text.strip().partition(":")
    is_one = (
        kind not in ("hf", "timm") and kind.replace(".", "").isidentifier() and rest.replace(".", "").isidentifier()
    )
    return _parted(text, _made(text, kind, rest)[1]) if is_one else None


def _from_factory(text: str, module: str, name: str, asks: Mapping[str, Ask]) -> Source:
    """What a user's own function makes."""
    found, made = _made(text, module, name)
    model, args, kwargs = _parted(text, made)
    from normula.torch.sources.guess import Guess
    from normula.torch.sources.trying import fitted, tensors

    model.eval()
    kwargs = {**kwargs, **tensors(asks, model)}
    if args or kwargs:
        _check(text, model, args, kwargs)
    else:
        guess = Guess(model, getattr(model, "config", {}))
        kwargs = dict(tensors(fitted(guess, guess.first(), {}), model))
    plain = Source(model=model, args=args, kwargs=kwargs, title=text)
    return replace(plain, flagged=_flagged(found, plain))


def _made(text: str, module: str, name: str) -> tuple[Any, Any]:
    """The function that a text names, and what it returns."""
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        raise SourceError(f"there is no module {error.name!r} (of {text}); is its folder on PYTHONPATH?") from None
    except Exception as error:  # whatever a user's module raises
        raise SourceError(f"the module {module!r} does not load ({first_line(error)})") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise SourceError(f"{module} has no {name!r}{nearest(part, dir(found))}")
        found = getattr(found, part)
    if not callable(found):
        raise SourceError(f"{text} is a {type(found).__name__}, not a function that makes a model")
    try:
        return found, _called(found) if not isinstance(found, nn.Module) else found
    except Exception as error:  # whatever a user's factory raises
        raise SourceError(f"{text} failed ({first_line(error)}); it is called without arguments") from error


def _check(text: str, model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse a model that does not run with its inputs; on meta tensors, they are moved there later."""
    from normula.torch.sources.trying import called

    if any(parameter.is_meta for parameter in model.parameters()):
        return
    try:
        called(model, args, kwargs)
    except Exception as error:  # whatever a user's forward raises
        raise SourceError(
            f"the forward of {text} raises with these inputs ({first_line(error)}{raised_at(error)}); "
            f"mend it, or pass others as --input name=shape"
        ) from error


def _called(factory: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a factory makes from seed 0; nobody's random state is used."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return factory(*args, **kwargs)


def _flagged(factory: Any, plain: Source) -> Flagged | None:
    """The flags of what a factory made: its own, or those of a config from which alone the model's class makes one."""
    if not isinstance(factory, nn.Module) and (values := keyword_flags(factory)):

        def flip(name: str) -> Source:
            model, _, _ = _parted(plain.title, _called(factory, **{name: not values[name]}))
            return replace(plain, model=model.eval())

        return flagged(plain, values, flip)
    config = getattr(plain.model, "config", None)
    if not isinstance(config, dict) and not hasattr(config, "__dict__"):
        return None
    made = type(plain.model)
    return flagged(
        plain,
        config_flags(config),
        lambda name: replace(plain, model=_called(made, with_flipped(config, name)).eval()),
    )


def _parted(text: str, made: Any) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """The model and the arguments in what a factory returned."""
    model, given = made if isinstance(made, tuple) and len(made) == 2 else (made, ())
    if not isinstance(model, nn.Module):
        raise SourceError(
            f"{text} returned a {type(model).__name__}; it must return a module, or a module and its inputs"
        )
    if isinstance(given, Mapping):
        return model, (), dict(given)
    if isinstance(given, Tensor):
        return model, (given,), {}
    if isinstance(given, (tuple, list)):
        return model, tuple(given), {}
    raise SourceError(
        f"the inputs that {text} returned are a {type(given).__name__}; "
        f"they must be a tensor, a tuple of them, or a dict by the names of the forward's arguments"
    )
