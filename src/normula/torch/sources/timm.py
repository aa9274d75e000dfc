"""Models of timm, made without weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from normula.formula.errors import nearest
from normula.torch.sources.ask import Ask
from normula.torch.sources.errors import SourceError, first_line, needed
from normula.torch.sources.guess import Guess
from normula.torch.sources.source import Source
from normula.torch.sources.trying import fitted, parameters, tensors

LARGEST = 150_000_000
"""Parameters of a model that is made with its weights (0.6 GB): larger ones are made on meta tensors."""
SIDE = 224
"""Of an image, where a model takes any: most of timm's take this one."""
DEPTH = 2
"""Layers of a twin."""


def from_timm(name: str, asks: Mapping[str, Ask], *, tiny: bool = False) -> Source:
    """A model of timm with an image of the least size that it takes; a large one has a twin of two layers.

    Raises:
        SourceError: timm has no such model, or it cannot be made.
        ImportError: timm, or the torchvision that it needs, is missing or does not load.
    """
    timm = needed("timm")
    if not timm.is_model(name.split(".")[0]):
        raise SourceError(f"timm has no model {name!r}{nearest(name, timm.list_models())}")
    model = _made(timm, name, "meta")
    if parameters(model) <= LARGEST:
        return _source(_made(timm, name, "cpu"), name, asks)
    twin = _twin(timm, name, asks)
    if tiny and twin is not None:
        return twin
    return replace(_source(model, name, asks), note="made without weights", twin=twin)


def _twin(timm: Any, name: str, asks: Mapping[str, Ask]) -> Source | None:
    """The same model with fewer layers, where timm can make it and it is small enough to run."""
    try:
        if parameters(_made(timm, name, "meta", depth=DEPTH)) <= LARGEST:
            return replace(_source(_made(timm, name, "cpu", depth=DEPTH), name, asks), note=f"made with {DEPTH} layers")
    except SourceError:
        pass  # it takes no depth
    return None


def _source(model: nn.Module, name: str, asks: Mapping[str, Ask]) -> Source:
    """A model with the smallest image that it runs with."""
    guess = Guess(model, {})
    for least in (True, False):
        first = {guess.takes.names[0]: Ask(shape=(1, *_size(model, least=least)))}
        try:
            found = fitted(guess, first, asks)
            break
        except SourceError:
            if not least:
                raise
    return Source(model=model, kwargs=dict(tensors(found, model)), title=f"timm:{name}")


def _made(timm: Any, name: str, device: str, **sizes: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]), torch.device(device):
        torch.manual_seed(0)
        try:
            model: nn.Module = timm.create_model(name, pretrained=False, **sizes)
        except Exception as error:  # whatever a foreign constructor raises
            if device == "meta":
                return _made(timm, name, "cpu", **sizes)
            raise SourceError(f"timm cannot make {name!r} ({first_line(error)})") from error
    return model.eval()


def _size(model: nn.Module, *, least: bool) -> tuple[int, ...]:
    """Channels and sides of an image, the least that the model takes or those of its config."""
    config: Mapping[str, Any] = getattr(model, "default_cfg", None) or {}
    channels, *sides = config.get("input_size") or (3, SIDE, SIDE)
    if least and not config.get("fixed_input_size"):
        channels, *sides = config.get("min_input_size") or (channels, *(min(side, SIDE) for side in sides))
    return (int(channels), *map(int, sides))
