"""Measured signal and gradient by depth, of a model that was read: at its weights, on inputs that it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

from normula.flow.findings import as_it_is, in_order
from normula.flow.growth import growth
from normula.flow.stream import stream_of
from normula.framework import framework_of, packages, room
from normula.read import read
from normula.read.streams import ReadChain, analysed
from normula.record import Finding, Flow, environment
from normula.record.reading import UNKNOWN, Reading
from normula.record.stream import Stream, StreamFlow

IDENTITY: Final = 1e-5
"""How far the stream may be from a * before + branch, relative to its largest number: single precision, a few sums."""

PASSES: Final = 3
"""How often a model is recorded: the first pass may fill caches that later ones find."""

NOTHING: Final = Stream(start=-1, steps=(), held=(), norms=(), features=None, width=0, unknown=(), unknown_beyond=False)
"""Of a model without a residual stream."""


def flow_of(
    model: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    seeds: Sequence[int] = (0, 1, 2),
    probe: str = "random",
    loss: Callable[[Any], Any] | None = None,
    where: str | None = None,
    report: Callable[[], None] = lambda: None,
) -> Flow:
    """Measure a model that somebody else wrote: it is read first, and each step of its stream is measured.

        >>> import torch
        >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        >>> flow = flow_of(torch.nn.TransformerEncoder(layer, 3), (torch.randn(2, 5, 8),), {})
        >>> [step.name for step in flow.passes[0].steps]
        ['attn', 'mlp', 'attn', 'mlp', 'attn', 'mlp']

    Args:
        model: a PyTorch module, in evaluation mode while it is measured; it is as it was afterwards.
        args, kwargs: of its forward.
        seeds: of the random probes; one pass for each.
        probe: `random` or `sum`, of the first tensor that the model returns.
        loss: from what the model returns to one number; instead of a probe.
        where: of several streams, the one whose layers' paths begin so; None for that with the most
            layers, the last one of equals.
        report: called after each pass.

    Returns:
        A record; `findings` says what it shows, what could not be measured, and whether the probe was void.

    Raises:
        ValueError: no stream has layers there; the model cannot be read; there is nothing to differentiate.
        Exception: whatever the forward raises.
    """
    if framework_of(model) != "torch":
        raise ValueError(f"A model that is measured after reading is a torch.nn.Module, not {type(model).__name__}.")
    frame = room("torch")
    reading = read(model, *args, **kwargs)
    for _ in range(PASSES):
        program = frame.open_capture(model, args, kwargs)
        graph, chains = analysed(program)
        proved = _proved(chains, reading)
        place = _chosen(chains, where)
        stream = NOTHING if place is None else stream_of(graph, chains, proved, place)
        measured: StreamFlow | None = frame.stream_flow(
            model, args, kwargs, program, stream, seeds=seeds if loss is None else seeds[:1], probe=probe, loss=loss,
            report=report,
        )  # fmt: skip
        if measured is not None:
            return _flow(model, reading, chains, place, stream, measured, "loss" if loss is not None else probe)
    raise ValueError(
        "Each forward pass of this model computes something else, so it cannot be measured. "
        "Pass arguments that make it repeatable."
    )


def _flow(
    model: Any,
    reading: Reading,
    chains: Sequence[ReadChain],
    place: int | None,
    stream: Stream,
    measured: StreamFlow,
    probe: str,
) -> Flow:
    whole = bool(stream.steps) and not stream.unknown
    found = [*as_it_is(measured.passes, stream.width, probe, whole=whole), *_not_measured(stream, measured)]
    if place is not None and (others := [_where(one) for at, one in enumerate(chains) if at != place and one.layers]):
        text = (
            f"This is the stream of {_where(chains[place])}. The model has others, of {', '.join(others)}; say "
            "where=... to measure one of them."
        )
        found.append(Finding(kind="other-streams", weight="note", text=text))
    return Flow(
        name=type(model).__qualname__,
        spec={},
        probe=probe,
        passes=measured.passes,
        growth=growth(measured.passes) if whole else None,
        findings=in_order(found),
        environment=environment(*packages("torch")),
        reading=reading.to_dict(),
        paths=() if place is None else tuple(layer.layer.path for layer in chains[place].layers),
        identity=measured.identity,
    )


def _proved(chains: Sequence[ReadChain], reading: Reading) -> list[list[bool]]:
    """For each layer of each stream, whether the reading proved the formula that it has here.

    A pass with gradients may compute something else than the one that was read; then nothing is proved.
    """
    blocks = [stage.block for stage in reading.stages for _ in range(stage.layers)]
    ends = list(accumulate((len(chain.layers) for chain in chains), initial=0))
    if ends[-1] != len(blocks):
        return [[False] * len(chain.layers) for chain in chains]
    return [
        [
            block not in (UNKNOWN, "") and layer.text == block
            for layer, block in zip(chain.layers, blocks[first:], strict=False)
        ]
        for chain, first in zip(chains, ends, strict=False)
    ]


def _chosen(chains: Sequence[ReadChain], where: str | None) -> int | None:
    """The place of the stream that is asked for; None where the model has none.

    Raises:
        ValueError: no stream has layers there.
    """
    places = [place for place, chain in enumerate(chains) if chain.layers]
    if where is not None:
        asked = [place for place in places if any(_is_at(layer.layer.path, where) for layer in chains[place].layers)]
        if not asked:
            known = ", ".join(_where(chains[place]) for place in places) or "no stream at all"
            raise ValueError(f"where={where!r} holds the layers of no stream. This model has {known}.")
        places = asked
    return max(places, key=lambda place: (len(chains[place].layers), place), default=None)


def _is_at(path: str, where: str) -> bool:
    return path == where or path.startswith(f"{where.rstrip('.')}.")


def _where(chain: ReadChain) -> str:
    """Where the layers of a stream are."""
    first, last = chain.layers[0].layer.path, chain.layers[-1].layer.path
    return repr(first) if first == last else f"{first!r} to {last!r}"


def _not_measured(stream: Stream, measured: StreamFlow) -> list[Finding]:
    """What the measurement could not see."""
    found = []
    if not stream.steps:
        text = "Void: no step of a residual stream is understood in this model, so nothing was measured on it."
        found.append(Finding(kind="no-stream", weight="void", text=text))
    elif stream.unknown:
        text = (
            f"{_numbers('Layer', stream.unknown)} of the stream {'is' if len(stream.unknown) == 1 else 'are'} not "
            "understood: no steps are shown there, and the gradient of the skip path is not known below."
        )
        found.append(Finding(kind="not-understood", weight="warning", text=text))
    if stream.unknown_beyond:
        text = (
            "A stream that this one leads to has layers that are not understood: the gradient of the skip path is not "
            "known."
        )
        found.append(Finding(kind="not-understood", weight="warning", text=text))
    if measured.unseen:
        text = (
            f"Autograd does not see the stream before {_numbers('step', [one + 1 for one in measured.unseen])}: it "
            "starts from a constant, or the model computes it without gradients, or in an operator of its own."
        )
        found.append(Finding(kind="gradient-not-seen", weight="warning", text=text))
    if measured.unheld:
        text = "Some sublayer's output is only a part of what one operator computes, so it cannot be held constant."
        found.append(Finding(kind="skip-path-not-seen", weight="warning", text=text))
    if stream.steps and not measured.tokens:
        text = (
            "Which axes of the stream are sequences and which are tokens is not known everywhere: cosines are missing."
        )
        found.append(Finding(kind="tokens-not-seen", weight="note", text=text))
    if measured.identity > IDENTITY:
        text = (
            f"The stream is not a * before + branch: they differ by {measured.identity:.0e} of the largest number. "
            "In half precision that is rounding; otherwise the sizes of the branches are wrong."
        )
        found.append(Finding(kind="identity", weight="warning", text=text))
    return found


def _numbers(word: str, numbers: Sequence[int]) -> str:
    """Numbers in words: layer 3; layers 3, 4 and 7."""
    texts = [str(one) for one in numbers]
    if len(texts) == 1:
        return f"{word} {texts[0]}"
    return f"{word}s {', '.join(texts[:-1])} and {texts[-1]}"
