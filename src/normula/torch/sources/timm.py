"""Models of timm, made without weights."""

from __future__ import annotations

from collections.abc import Mapping
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
"""Parameters of a model that is made with its weights (0.6 GB): there is no tiny twin to run instead."""


def from_timm(name: str, asks: Mapping[str, Ask]) -> Source:
    """A model of timm with an image of its default size.

    Raises:
        SourceError: timm has no such model, or it cannot be made.
        ImportError: timm, or the torchvision that it needs, is missing or does not load.
    """
    timm = needed("timm")
    if not timm.is_model(name.split(".")[0]):
        raise SourceError(f"timm has no model {name!r}{nearest(name, timm.list_models())}")
    model = _made(timm, name, "meta")
    if parameters(model) <= LARGEST:
        model = _made(timm, name, "cpu")
    image = Ask(shape=(1, *_size(model)))
    guess = Guess(model, {})
    first = {guess.takes.names[0]: image}
    found = fitted(guess, first, asks)
    note = "" if not next(model.parameters(), torch.empty(0)).is_meta else "made without weights"
    return Source(model=model, kwargs=dict(tensors(found, model)), title=f"timm:{name}", note=note)


def _made(timm: Any, name: str, device: str) -> nn.Module:
    with torch.random.fork_rng(devices=[]), torch.device(device):
        torch.manual_seed(0)
        try:
            model: nn.Module = timm.create_model(name, pretrained=False)
        except Exception as error:  # whatever a foreign constructor raises
            if device == "meta":
                return _made(timm, name, "cpu")
            raise SourceError(f"timm cannot make {name!r} ({first_line(error)})") from error
    return model.eval()


def _size(model: nn.Module) -> tuple[int, ...]:
    """Channels and sides of an image, the least that the model says it takes."""
    config: Mapping[str, Any] = getattr(model, "default_cfg", None) or {}
    size = config.get("min_input_size") if not config.get("fixed_input_size") else None
    channels, *sides = size or config.get("input_size") or (3, 224, 224)
    return (int(channels), *map(int, sides))
