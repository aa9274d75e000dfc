"""A model as it is, and as it would be with a flag the other way round: what its weights may have been trained with."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from normula.torch.capture.nested import tensors
from normula.torch.capture.scope import undisturbed
from normula.torch.guarded import bare, eagerly
from normula.torch.sources.flags import MOST, OTHERS, SPEAKS, config_flags, with_flipped

Opening = Callable[[], AbstractContextManager[nn.Module]]

IGNORED: Final = -100
"""The label of a token that does not count, as PyTorch has it."""

LOUDNESSES: Final = tuple(2.0**power for power in range(-3, 6))
"""The RMS of logits about their mean, from where a softmax is nearly even to where it is nearly a choice."""


def variants(model: nn.Module) -> Iterator[tuple[str, Opening]]:
    """A name and what opens it: the model as it is, with flags of its live modules, with flags of its config."""
    model = bare(model)
    yield "as it is", lambda: _as_it_is(model)
    live = _live_flags(model)
    for name, modules in live.items():
        value = getattr(modules[0], name)
        yield f"{name}={not value}", lambda name=name, modules=modules: _flipped(model, name, modules)  # type: ignore[misc]
    config = getattr(model, "config", None)
    if not isinstance(config, dict) and hasattr(config, "__dict__"):
        flags = config_flags(config)
        for name in [one for one in flags if _speaks(one)][:MOST]:
            yield f"config.{name}={not flags[name]}", lambda name=name: _made(model, with_flipped(config, name))  # type: ignore[misc]


@dataclass(frozen=True, slots=True)
class Losses:
    """What a batch says of a model.

    Attributes:
        own: the loss of each sequence in nats.
        chance: that of a model that guesses evenly, where it is known.
        even: the loss of each sequence with logits brought to each of `LOUDNESSES`; empty where there are none.
    """

    own: NDArray[np.float64]
    chance: float | None = None
    even: tuple[NDArray[np.float64], ...] = ()


def losses(model: nn.Module, batch: Mapping[str, Any], loss: Callable[[Any], Any] | None) -> Losses:
    """The loss of each sequence of a batch, as loud as the model says it, and quieter and louder.

    Without a loss of its own, a causal model is asked for the next token, another for the labels, or for the tokens
    that it was given.

    Raises:
        ValueError: the batch and the output do not give one.
    """
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    with undisturbed(model, 0, generic=False), eagerly():
        output = _output(model, inputs)
        if loss is not None:
            value = loss(output)
            return Losses(np.atleast_1d(torch.as_tensor(value).detach().double().cpu().numpy()).reshape(-1))
        logits = _logits(output)
        labels = batch.get("labels", batch.get("input_ids"))
        if logits is None or labels is None:
            raise ValueError(
                "a loss needs logits and input_ids or labels in the batch; pass loss= with a function of the output"
            )
        if logits.dim() == 3 and labels.dim() == 2 and _is_causal(model, inputs, logits):
            logits, labels = logits[:, :-1], labels[:, 1:]
        if logits.shape[:-1] != labels.shape:
            raise ValueError(f"labels of shape {list(labels.shape)} do not fit logits of shape {list(logits.shape)}")
        centred = logits.float() - logits.float().mean(-1, keepdim=True)
        rms = max(float(centred.square().mean().sqrt()), 1e-9)
        return Losses(
            own=_of_each(centred, labels),
            chance=float(np.log(logits.shape[-1])),
            even=tuple(_of_each(centred * (one / rms), labels) for one in LOUDNESSES),
        )


def _output(model: nn.Module, inputs: Mapping[str, Any]) -> Any:
    try:
        return model(**inputs)
    except Exception as error:  # whatever a forward raises on what it is not made for
        said = (str(error).strip().splitlines() or [""])[0]
        raise ValueError(
            f"the batch ({', '.join(inputs)}) does not go through the model ({type(error).__name__}: {said[:160]}). "
            "Name its tensors as the arguments of forward are, in its shapes"
        ) from error


def _of_each(logits: Tensor, labels: Tensor) -> NDArray[np.float64]:
    """The mean over the tokens of each sequence that count."""
    each = F.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), labels.reshape(-1).long(), ignore_index=IGNORED, reduction="none"
    )
    each, axes = each.reshape(labels.shape).double(), tuple(range(1, labels.dim()))
    counted = (labels != IGNORED).double()
    mean = each.sum(axes) / counted.sum(axes).clamp(min=1) if axes else each
    found: NDArray[np.float64] = mean.cpu().numpy()
    return found


def as_batch(batch: Mapping[str, Any], model: nn.Module) -> dict[str, Any]:
    """Arrays as tensors where the model is."""
    device = next((one.device for one in model.parameters()), torch.device("cpu"))
    return {
        name: torch.as_tensor(value).to(device) if isinstance(value, Tensor | np.ndarray | list) else value
        for name, value in batch.items()
    }


def _logits(output: Any) -> Tensor | None:
    found = getattr(output, "logits", None)
    if isinstance(found, Tensor):
        return found
    return next((one for one in tensors(output) if one.is_floating_point() and one.dim() in (2, 3)), None)


def _is_causal(model: nn.Module, inputs: Mapping[str, Any], logits: Tensor) -> bool:
    """Whether a change of the last token leaves all logits before it as they were."""
    ids = inputs.get("input_ids", next(iter(inputs.values()), None))
    if not isinstance(ids, Tensor) or ids.is_floating_point() or ids.dim() != 2:
        return False
    other = ids.clone()
    other[:, -1] = (other[:, -1] + 1) % max(int(ids.max()), 2)
    changed = _logits(model(**{name: other if value is ids else value for name, value in inputs.items()}))
    return changed is not None and bool(torch.allclose(changed[:, :-1], logits[:, :-1], atol=1e-5, rtol=1e-4))


def _live_flags(model: nn.Module) -> dict[str, list[nn.Module]]:
    """Truth values of modules whose names speak of norms or residuals, each with the modules that have it."""
    found: dict[str, list[nn.Module]] = {}
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, bool) and name != "training" and not name.startswith("_") and _speaks(name):
                found.setdefault(name, []).append(module)
    return dict(list(found.items())[:MOST])


def _speaks(name: str) -> bool:
    last = name.split(".")[-1].lower()
    return SPEAKS.search(last) is not None and OTHERS.search(last) is None


@contextmanager
def _as_it_is(model: nn.Module) -> Iterator[nn.Module]:
    yield model


@contextmanager
def _flipped(model: nn.Module, name: str, modules: Sequence[nn.Module]) -> Iterator[nn.Module]:
    before = [getattr(module, name) for module in modules]
    try:
        for module, value in zip(modules, before, strict=True):
            setattr(module, name, not value)
        yield model
    finally:
        for module, value in zip(modules, before, strict=True):
            setattr(module, name, value)


@contextmanager
def _made(model: nn.Module, config: Any) -> Iterator[nn.Module]:
    with torch.random.fork_rng(devices=[]):
        yield type(model)(copy.deepcopy(config)).eval()
