"""A transformers model of a config: random weights, in evaluation mode."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from normula.torch.sources.errors import SourceError, first_line, needed
from normula.torch.sources.fields import parts


def class_of(config: Any) -> Any:
    """The class without a head for a config; where there is none, the first one with a head.

    Raises:
        SourceError: transformers has no model of this config.
    """
    others = list[Any]()
    for found in _classes(config):
        try:
            if getattr(found, "config_class", None) is type(config):
                return found
        except ImportError as error:  # what stands in for a class whose packages are missing
            raise SourceError(f"{found.__name__} needs what is not installed ({first_line(error)})") from None
        others.append(found)  # a table may name the model of a part
    if others:
        return others[0]
    raise SourceError(
        f"transformers has a config of type {config.model_type!r} but no model of it; "
        f"pass the type of a part that is a model, or a factory as package.module:function"
    )


def _classes(config: Any) -> Iterator[Any]:
    transformers = needed("transformers")
    auto = needed("transformers.models.auto.modeling_auto")
    tables = ["MODEL_MAPPING_NAMES", "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"]
    tables += [name for name in vars(auto) if name.endswith("_MAPPING_NAMES") and name not in tables]
    for table in tables:
        names = getattr(auto, table, {}).get(config.model_type) or ()
        for name in [names] if isinstance(names, str) else names:
            found = getattr(transformers, name, None) or _beside(config, name)
            if found is not None:
                yield found


def _beside(config: Any, name: str) -> Any:
    """A class that transformers does not export, from the file beside its config's."""
    try:
        return getattr(needed(type(config).__module__.replace(".configuration_", ".modeling_")), name, None)
    except ImportError:
        return None


def make(config: Any, device: str = "cpu") -> nn.Module:
    """A model of a config, in float32 and evaluation mode; its weights are drawn from seed 0, nobody's state is used.

    Raises:
        SourceError: it cannot be made; the message says why.
    """
    transformers = needed("transformers")
    found = class_of(config)
    if device == "meta" and hasattr(type(config), "_experts_implementation"):
        config = copy.deepcopy(config)  # the usual way of mixtures, grouped, is of bfloat16 only on meta tensors
        config._experts_implementation = "batched_mm"
    with quiet(transformers), torch.random.fork_rng(devices=[]), _float32(), torch.device(device):
        torch.manual_seed(0)
        try:
            model: nn.Module = found(config)
        except ImportError as error:
            raise SourceError(f"{found.__name__} needs what is not installed ({first_line(error)})") from None
        except Exception as error:  # whatever a foreign constructor raises
            raise SourceError(f"{found.__name__} cannot be made of this config ({first_line(error)})") from error
    return model.eval()


def plain(config: Any) -> Any:
    """A config that keeps no cache: what is asked for is one pass."""
    for fields in parts(config):
        if "use_cache" in fields:
            fields["use_cache"] = False
    return config


@contextmanager
def _float32() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """Without the warnings that a foreign library logs while a model is made."""
    log = transformers.utils.logging
    before = log.get_verbosity()
    log.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.set_verbosity(before)
