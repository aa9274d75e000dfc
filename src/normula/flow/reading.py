"""Measured signal and gradient by depth, of a model that was read: at its weights, on inputs that it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, Final

from normula.flow.copies import copies
from normula.flow.coverage import coverage
from normula.flow.decay import decay_findings, decay_of
from normula.flow.findings import as_it_is, in_order
from normula.flow.growth import growth
from normula.flow.measured import measured, watched
from normula.flow.reached import reached_findings
from normula.flow.rows import row_findings
from normula.flow.stream import stream_of
from normula.flow.writers import writer_findings
from normula.framework import packages, room
from normula.read import framework_to_read, read
from normula.read.found import ReadChain
from normula.read.graph import Graph
from normula.read.streams import analysed
from normula.record import Finding, Flow, environment
from normula.record.reading import UNKNOWN, Ran, Reading
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
    reading: Reading | None = None,
    optimizer: Any = None,
    draws: int = 0,
    report: Callable[[], None] = lambda: None,
) -> Flow:
    """Measure a model that somebody else wrote: it is read first, and each step of its stream is measured.

        >>> import torch
        >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        >>> flow = flow_of(torch.nn.TransformerEncoder(layer, 3), (torch.randn(2, 5, 8),), {})
        >>> [step.name for step in flow.passes[0].steps]
        ['attn', 'mlp', 'attn', 'mlp', 'attn', 'mlp']

    Args:
        model: whatever `read` takes, in evaluation mode while it is measured; it is as it was afterwards.
        args, kwargs: of its forward.
        seeds: of the random probes; one pass for each.
        probe: `random` or `sum`, of the first floating-point array that the model returns.
        loss: from what the model returns to one number; instead of a probe.
        where: of several streams, the one whose layers' paths begin so; None for that with the most
            layers, the last one of equals.
        reading: of this model; None to read it here.
        optimizer: of PyTorch, whose weight decay of norms and residual scales is told.
        draws: passes in training mode, to tell which parameters a gradient comes to; in PyTorch.
        report: called after each pass.

    Returns:
        A record; `findings` says what it shows, what could not be measured, and whether the probe was void.

    Raises:
        ValueError: no stream has layers there; the model cannot be read; there is nothing to differentiate.
        Exception: whatever the forward raises.
    """
    framework = framework_to_read(model, (args, kwargs))
    _check_training(framework, optimizer, draws)
    frame = room(framework)
    reading = read(model, *args, **kwargs) if reading is None else reading
    for _ in range(PASSES):
        program = frame.open_capture(model, args, kwargs)
        graph, chains = analysed(program)
        place = _chosen(chains, where)
        stream = NOTHING if place is None else stream_of(graph, chains, _proved(chains, reading), place)
        with frame.observed(model, args, kwargs, program, watched(stream)) as seen:
            if seen is not None:
                once = seeds if loss is None else seeds[:1]
                found = measured(program, stream, seen, seeds=once, probe=probe, loss=loss, report=report)
                named = "loss" if loss is not None else probe
                flow = _flow(_name(model), framework, reading, graph, chains, place, stream, found, named)
                break
    else:
        raise ValueError(
            "Each forward pass of this model computes something else, so it cannot be measured. "
            "Pass arguments that make it repeatable."
        )
    if optimizer is not None:
        decayed = decay_of(graph, chains, frame.decays(model, optimizer))
        flow = replace(flow, decays=decayed, findings=in_order([*flow.findings, *decay_findings(decayed)]))
    if draws:
        counts = frame.reached(model, args, kwargs, draws=draws, probe=probe, loss=loss)
        flow = replace(flow, findings=in_order([*flow.findings, *reached_findings(counts, draws)]))
    return flow


def _check_training(framework: str, optimizer: Any, draws: int) -> None:
    """Raises ValueError where what is asked of a training cannot be told."""
    if framework != "torch" and (optimizer is not None or draws != 0):
        raise ValueError("optimizer and draws are of a PyTorch model; a model of JAX has neither mode nor groups")
    if not isinstance(draws, int) or draws < 0:
        raise ValueError(f"draws are a whole number of at least 0, not {draws!r}")


def flow_of_reading(
    reading: Reading,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    probe: str = "random",
    loss: Callable[[Any], Any] | None = None,
    where: str | None = None,
    **options: Any,
) -> Flow:
    """The same for a model that was read: on the inputs that it was read with, where none are given.

    A model without weights is measured in the smaller twin that it was proved on, and a finding says so.

    Raises:
        ValueError: the reading came from a file, or the model computes shapes only; as `flow_of`.
        Exception: whatever the forward raises.
    """
    ran = reading.ran
    if not isinstance(ran, Ran):
        raise ValueError(
            "This reading is data without a model, as one from a file or another process is. "
            "Read the model again, or measure it: nm.flow(model, x)."
        )
    kwargs = dict(kwargs or {})
    if ran.is_twin and (args or kwargs):
        raise ValueError(
            "This model holds no weights, so its smaller twin is measured, and that takes inputs of its own. "
            "Leave the inputs out, or give the model weights."
        )
    if not args and not kwargs:
        args, kwargs = ran.args, dict(ran.kwargs)
    found = flow_of(
        ran.model, args, kwargs, seeds=seeds, probe=probe, loss=loss, where=where,
        reading=None if ran.is_twin else reading, **options,
    )  # fmt: skip
    if not ran.is_twin:
        return found
    note = Finding(
        kind="twin",
        weight="note",
        text="This model holds no weights, so what was measured is a smaller twin of it with random weights: the "
        "course over depth is that of the structure, not of this model's size.",
    )
    return replace(found, findings=in_order([*found.findings, note]))


def _flow(
    name: str,
    framework: str,
    reading: Reading,
    graph: Graph,
    chains: Sequence[ReadChain],
    place: int | None,
    stream: Stream,
    found: StreamFlow,
    probe: str,
) -> Flow:
    whole = bool(stream.steps) and not stream.unknown
    paths = () if place is None else tuple(layer.layer.path for layer in chains[place].layers)
    findings = [
        *as_it_is(found.passes, stream.width, probe, whole=whole, centred=stream.centred),
        *_not_measured(reading, stream, found),
        *row_findings(found.norms),
        *copies(paths, found.passes[0].weights, _axes(graph)),
        *(() if place is None else writer_findings(graph, chains[place], found.passes[0].weights)),
    ]
    if place is not None and (others := [_where(one) for at, one in enumerate(chains) if at != place and one.layers]):
        text = (
            f"This is the stream of {_where(chains[place])}. The model has others, of {', '.join(others)}; say "
            "where=... to measure one of them."
        )
        findings.append(Finding(kind="other-streams", weight="note", text=text))
    return Flow(
        name=name,
        spec={},
        probe=probe,
        passes=found.passes,
        growth=growth(found.passes) if whole else None,
        findings=in_order([*findings, *([seen] if (seen := coverage(reading, graph, chains)) else [])]),
        environment=environment(*packages(framework)),
        reading=reading.to_dict(),
        paths=paths,
        norms=found.norms,
        identity=found.identity,
    )


def _axes(graph: Graph) -> dict[str, int]:
    """How many axes each parameter has, by name."""
    leaves = [(name, node) for _, node in graph.leaves() for name in node.attrs.get("names", ())]
    return {name.replace("/", "."): len(node.shape) for name, node in leaves}


def _name(model: Any) -> str:
    """A function's own name, or a module's class."""
    return str(getattr(model, "__qualname__", type(model).__qualname__))


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


def _not_measured(reading: Reading, stream: Stream, seen: StreamFlow) -> list[Finding]:
    """What the measurement could not see."""
    found = []
    if not reading.stages:
        text = "Void: no residual stream was found in this model, so there is nothing to measure."
        found.append(Finding(kind="no-stream", weight="void", text=text))
    elif not stream.steps:
        broken = next((one.evidence for one in reading.findings if one.code == "weights-not-finite"), "")
        why = f": it has {broken}" if broken else ""
        text = f"Void: no step of a residual stream is understood in this model, so nothing was measured on it{why}."
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
    if seen.unseen:
        text = (
            f"Autograd does not see the stream before {_numbers('step', [one + 1 for one in seen.unseen])}: it "
            "starts from a constant, or the model computes it without gradients, or in an operator of its own."
        )
        found.append(Finding(kind="gradient-not-seen", weight="warning", text=text))
    if seen.unheld:
        text = "Some sublayer's output is only a part of what one operator computes, so it cannot be held constant."
        found.append(Finding(kind="skip-path-not-seen", weight="warning", text=text))
    if stream.steps and not seen.tokens:
        text = (
            "Which axes of the stream are sequences and which are tokens is not known everywhere: cosines are missing."
        )
        found.append(Finding(kind="tokens-not-seen", weight="note", text=text))
    if seen.own_rules:
        text = (
            "The model has rules of its own for gradients, and they give others than its forward has: what is shown "
            "is the gradient of what the forward computes."
        )
        found.append(Finding(kind="own-gradient", weight="warning", text=text))
    if seen.identity > IDENTITY:
        text = (
            f"The stream is not a * before + branch: they differ by {seen.identity:.0e} of the largest number. "
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
