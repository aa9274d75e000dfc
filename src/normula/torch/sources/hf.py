"""Models of transformers, made from a config alone: random weights, no download of weights, no foreign code."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from normula.formula.errors import nearest
from normula.torch.sources.ask import Ask
from normula.torch.sources.errors import SourceError, first_line, needed
from normula.torch.sources.flags import config_flags, flagged, with_flipped
from normula.torch.sources.guess import Guess
from normula.torch.sources.make import make, plain, quiet
from normula.torch.sources.source import Source
from normula.torch.sources.trying import LARGEST_REAL, CannotGuess, fit, parameters, tensors
from normula.torch.sources.twin import Made, twin

LARGEST_WEIGHED = 200_000_000
"""Parameters of a model that is made with random weights where it is measured: 0.8 GB, and as much of gradients."""


def config_of(name: str) -> Any:
    """The config of a model type (its default one), of a local config.json or folder, or of a name on the hub.

    Raises:
        SourceError: there is none; the message says what to pass instead.
    """
    transformers = needed("transformers")
    with quiet(transformers):
        if name in transformers.CONFIG_MAPPING:
            try:
                return transformers.CONFIG_MAPPING[name]()
            except Exception as error:
                raise SourceError(
                    f"the model type {name!r} has no default config ({first_line(error)}); pass a config.json"
                ) from None
        path = Path(name).expanduser()
        if path.exists() or name.endswith(".json") or name.startswith((".", "/", "~")):
            return _local(transformers, path)
        return _from_hub(transformers, name)


def from_hf(name: str, asks: Mapping[str, Ask], *, tiny: bool) -> Source:
    """A model of transformers with inputs that its tiny twin runs with.

    Raises:
        SourceError: there is no such config, its model cannot be made, or its inputs cannot be guessed.
    """
    title = f"hf:{name}"
    small = twin(config_of(name), asks)
    notes = "; ".join(small.notes)
    small_one = Source(model=small.model, kwargs=dict(tensors(small.asks, small.model)), title=title, note=notes)
    tried = flagged(
        small_one,
        config_flags(small.config),
        lambda name: replace(small_one, model=make(with_flipped(small.config, name))),
    )
    small_one = replace(small_one, flagged=tried)
    if tiny:
        return small_one
    whole = plain(small.whole)
    try:
        model = make(whole, "meta")
        if parameters(model) <= LARGEST_REAL:
            model = make(whole)
    except SourceError as error:
        return replace(small_one, note=f"{notes}; the whole model is not made: {error}")
    found, checked = _at_full_size(Guess(model, whole), small, asks)
    said = list(small.notes[:-1]) + ([] if checked else ["the inputs are those of a tiny twin, not tried at full size"])
    is_meta = any(parameter.is_meta for parameter in model.parameters())

    def weighed() -> Source:
        real = make(whole)
        return Source(model=real, kwargs=dict(tensors(found, real)), title=title)

    return Source(
        model=model,
        kwargs=dict(tensors(found, model)),
        title=title,
        note="; ".join([*said, *(["made without weights"] if is_meta else [])]),
        twin=small_one if is_meta else None,
        weighed=weighed if is_meta and parameters(model) <= LARGEST_WEIGHED else None,
        flagged=tried,
    )


def _at_full_size(guess: Guess, small: Made, given: Mapping[str, Ask]) -> tuple[dict[str, Ask], bool]:
    """The twin's inputs in the sizes of the whole model, and whether the model ran with them."""
    guessed = Guess(small.model, small.config)
    for asks in (small.asks, small.least):
        start = dict[str, Ask]()
        for name, ask in asks.items():
            same = guessed.ask(name).shape == ask.shape  # nothing was learned about it
            start[name] = replace(ask, shape=guess.ask(name).shape) if same else ask
        try:
            return fit(guess, start, given, tries=8, seconds=5.0), True
        except CannotGuess:
            continue  # on meta tensors, nothing that depends on values can run
    return {**start, **given}, False


def _local(transformers: Any, path: Path) -> Any:
    file = path / "config.json" if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        raise SourceError(f"the folder {path} has no config.json; pass a folder that has one, or the file itself")
    if not file.is_file():
        raise SourceError(
            f"there is no file {path}; pass a config.json, a folder with one, or a model type such as gpt2"
        )
    if file.suffix != ".json":
        raise SourceError(f"hf: reads a config.json, not {file.name}; weights are never loaded")
    try:
        written = json.loads(file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise SourceError(f"{file} is no JSON ({first_line(error)})") from None
    return _typed(transformers, written, str(file))


def _from_hub(transformers: Any, name: str) -> Any:
    instead = "pass a model type such as hf:gpt2, a config.json, or a folder with one"
    known = list(transformers.CONFIG_MAPPING.keys())
    if "/" not in name and (close := nearest(name, known)):
        raise SourceError(f"no model type of transformers is called {name!r}{close}")
    try:
        written, _ = _downloaded(transformers, name)
    except Exception as error:  # no network, no such name, no right to it: the hub's errors are many
        unknown = "" if "/" in name else f"no model type of transformers is called {name!r}, and "
        raise SourceError(
            f"{unknown}the config of {name!r} cannot be had from the hub ({_why(error)}); {instead}"
        ) from None
    return _typed(transformers, written, name)


def _downloaded(transformers: Any, name: str) -> Any:
    """What the hub, or its cache here, has as a name's config; without a network, no long tries to reach it."""
    get = transformers.PreTrainedConfig.get_config_dict
    try:
        return get(name, local_files_only=True)
    except OSError:
        if _offline():
            raise
        host = urlsplit(needed("huggingface_hub.constants").ENDPOINT).hostname
        if host and not getproxies().get("https"):
            socket.getaddrinfo(host, 443)
        return get(name)


def _offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "0").upper() in ("1", "ON", "YES", "TRUE")


def _why(error: Exception) -> str:
    if _offline():
        return "HF_HUB_OFFLINE is set"
    text = first_line(error)
    return "no network" if isinstance(error, socket.gaierror) or "onnect" in text else text


def _typed(transformers: Any, written: Any, where: str) -> Any:
    """A config object from what a file says."""
    if not isinstance(written, dict):
        raise SourceError(f"{where} is no config: a config is a JSON object, not {type(written).__name__}")
    kind = written.get("model_type")
    if not kind:
        raise SourceError(f'{where} does not say its model_type; add it, such as "model_type": "gpt2"')
    if kind not in transformers.CONFIG_MAPPING:
        code = "; it comes with code of its own, which is never run here" if "auto_map" in written else ""
        close = nearest(str(kind), list(transformers.CONFIG_MAPPING.keys()))
        raise SourceError(
            f"{where} is of type {kind!r}, which transformers {transformers.__version__} does not have{close or code}"
        )
    try:
        return transformers.CONFIG_MAPPING[kind].from_dict(written)
    except Exception as error:
        raise SourceError(f"{where} is no valid config of type {kind!r} ({first_line(error)})") from None
