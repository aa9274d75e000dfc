"""What a reader of a model should know: each finding with a code, what was seen, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from normula.formula import Formula
from normula.read.expression import Applied
from normula.read.graph import Graph
from normula.read.norms import is_norm
from normula.read.strip import step_down
from normula.read.sublayers import queries_and_keys
from normula.record.reading import ReadFinding, Reading, ReadNorm, ReadStage

CODES: Final = {
    "final-norm-missing": "close the stack with one norm, or give every sublayer a smaller start",
    "final-norm-doubled": "leave out one of the two; a checkpoint that was trained with both needs both",
    "skip-from-normed": "save x before the norm and add that, if an identity path is wanted",
    "sublayer-unlike": "give all sublayers of a layer the same placement, unless the difference is meant",
    "norm-unused": "use its value where it belongs, or remove it",
    "norm-reused": "give each place a norm of its own, unless sharing is meant",
    "query-only-normed": "norm once and give the same value to queries, keys and values",
    "norm-over-tokens": "take the statistics over the features of one token",
    "future-leaks": "take the statistics over the features of one token; a causal mask does not cover a norm",
    "width-tiny": "a norm of one feature gives a constant, of two a sign: use more features",
    "eps-unusual": "use one epsilon, between 1e-12 and 1e-5, as the model's other norms do",
    "half-precision-statistics": "cast to float32 before the mean of squares",
    "name-misleads": "go by what runs; rename the module",
    "flag-without-effect": "go by what runs; remove the flag, or make the code read it",
    "layer-reused": "nothing, if one layer is meant to run several times",
    "weights-not-finite": "go back to a checkpoint from before; normula flow on that one shows where it began",
    "fused-path": "nothing: hooks and changed modules are not seen where the fused path runs",
}
"""The codes, each with its remedy."""

ODD_EPS: Final = (1e-13, 2e-4)
"""Below the first, an epsilon does nothing in single precision; above the second, it changes a unit-size stream."""

_HALF: Final = ("float16", "bfloat16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What findings are made from.

    Attributes:
        graph: the program.
        stages, embed, final: of the reading.
        norms: of the reading.
        applied: the sublayers, each with its path.
        norm_nodes: for each norm of the reading its nodes.
    """

    graph: Graph
    stages: Sequence[ReadStage]
    embed: Sequence[bool]
    final: Sequence[bool]
    norms: Sequence[ReadNorm]
    applied: Sequence[tuple[str, Applied]]
    norm_nodes: Sequence[tuple[int, ...]]


def findings(seen: Seen) -> tuple[ReadFinding, ...]:
    """All that should be known, in the order of the codes."""
    found = [
        *_final(seen),
        *_skips(seen),
        *_siblings(seen),
        *_unused(seen),
        *_reused(seen),
        *_queries(seen),
        *_axes(seen),
        *_per_channel(seen),
        *_sizes(seen),
        *_names(seen),
        *_shared_layers(seen),
    ]
    if seen.graph.program.fused:
        found.append(
            ("fused-path", "in evaluation without gradients PyTorch's fused path runs; it was off for this reading")
        )
    return in_order(finding(code, evidence) for code, evidence in found)


def finding(code: str, evidence: str) -> ReadFinding:
    """A finding with the remedy of its code."""
    return ReadFinding(code=code, evidence=evidence, remedy=CODES[code])


def with_broken(reading: Reading, names: Sequence[str]) -> Reading:
    """A reading whose proof failed since weights are not finite, and says so."""
    if not names:
        return reading
    told = f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
    seen = "nothing can be proved of it with weights that are not finite"
    stages = tuple(replace(one, seen=seen) if one.proof == "failed" else one for one in reading.stages)
    evidence = f"weights that are not finite (NaN or infinite): {told}"
    return replace(reading, stages=stages, findings=(finding("weights-not-finite", evidence), *reading.findings))


def in_order(found: Iterable[ReadFinding]) -> tuple[ReadFinding, ...]:
    """Findings in the order of the codes."""
    order = list(CODES)
    return tuple(sorted(found, key=lambda one: order.index(one.code)))


def _final(seen: Seen) -> Iterator[tuple[str, str]]:
    for place, stage in enumerate(seen.stages):
        last = place + 1 == len(seen.stages) or seen.embed[place + 1] or _starts_anew(seen.stages[place + 1])
        if not stage.known or not last or sum(one.layers for one in seen.stages) < 2:
            continue
        closed = _ends_in_norm(stage.block)
        if not closed and "norm(" in stage.block and not seen.final[place]:
            yield "final-norm-missing", f"{stage.where or 'the stack'}: {stage.block}, and no norm after the last layer"
        if closed and seen.final[place]:
            yield (
                "final-norm-doubled",
                f"{stage.where or 'the stack'}: its last layer ends in a norm, and one more follows",
            )


def _starts_anew(stage: ReadStage) -> bool:
    return "cross(" in stage.block


def _ends_in_norm(block: str) -> bool:
    """Whether the last value of the stream is a norm's."""
    last = Formula(block).tree.statements[-1].value
    return getattr(last, "word", "") == "norm"


_CARRIES_NORMED: Final = re.compile(r"(n|x) = norm\(x\); \w+ = (?:norm\()?(?:[\d.]+ \* )?\1 \+ ")
"""A layer that adds its branches to a norm of the stream."""


def _skips(seen: Seen) -> Iterator[tuple[str, str]]:
    for place, stage in enumerate(seen.stages):
        if stage.known and _CARRIES_NORMED.match(stage.block):
            shifted = seen.final[place] if place < len(seen.final) else False
            same = "; with the last norm it is Post-LN with every norm one place later" if shifted else ""
            yield "skip-from-normed", f"{stage.where or 'the stack'}: {stage.block} has no identity path{same}"


def _siblings(seen: Seen) -> Iterator[tuple[str, str]]:
    for stage in seen.stages:
        steps = _steps(stage.block) if stage.known else []
        if len(set(steps)) > 1:
            yield "sublayer-unlike", f"{stage.where or 'the stack'}: {stage.block}"


def _steps(block: str) -> list[str]:
    """What each statement does, with one word for every sublayer and no numbers; branches in parallel are left out."""
    words = re.compile(r"\b(?:attn|cross|mlp|moe|ssm|conv|pool|fourier)\(")
    statements = [words.sub("f(", one.split(" = ", 1)[-1]) for one in block.split("; ")]
    single = [one for one in statements if one.count("f(") == 1]
    return [re.sub(r"[\d.]+ \* ", "", one) for one in single if "n" not in re.findall(r"\b\w+\b", one)]


def _unused(seen: Seen) -> Iterator[tuple[str, str]]:
    graph = seen.graph
    unread = unread_vectors(graph)
    for path in graph.program.uncalled:
        if _dotted(path) in unread:
            yield "norm-unused", f"{path} holds vectors as a norm does, and is never called"
    computed = {one for node in graph.nodes for one in node.inputs}
    called = {_dotted(call.path) for call in graph.program.calls}
    for path, own in unread.items():
        if path in called and not computed.isdisjoint(own):
            yield "norm-unused", f"{path} is called, and nothing that the model returns depends on its value"


def unread_vectors(graph: Graph) -> dict[str, list[int]]:
    """The modules that hold vectors only, as norms do, of which nothing that the model returns is made.

    Where that is so of all matrices beside them too, a whole part of the model does not run: its norms are not named.
    """
    owned: dict[str, list[int]] = {}
    for number, node in graph.leaves():
        for name in node.attrs["names"] if node.kind == "parameter" else ():
            owned.setdefault(_dotted(name).rpartition(".")[0], []).append(number)
    below: dict[str, list[int]] = {}
    for path, own in owned.items():
        for around in _around(path):
            below.setdefault(around, []).extend(own)
    return {
        path: own
        for path, own in owned.items()
        if path and len(below[path]) == len(own) and _all_vectors(graph, own) and not _any_alive(graph, own)
        if any(_any_alive(graph, below[around]) for around in _beside(graph, path, below))
    }


def _dotted(name: str) -> str:
    """A path of either framework; the place in a stack of layers, which JAX writes behind it, is left out."""
    return name.partition("[")[0].replace("/", ".")


def _around(path: str) -> list[str]:
    """A path and those of the modules around it, the innermost first."""
    found = [path]
    while path:
        path = path.rpartition(".")[0]
        found.append(path)
    return found


def _beside(graph: Graph, path: str, below: Mapping[str, list[int]]) -> list[str]:
    """The innermost module around a path that holds more than vectors; none in a model of norms alone."""
    return [around for around in _around(path) if not _all_vectors(graph, below[around])][:1]


def _all_vectors(graph: Graph, numbers: Sequence[int]) -> bool:
    return all(len(graph[number].shape) <= 1 for number in numbers)


def _any_alive(graph: Graph, numbers: Sequence[int]) -> bool:
    return any(graph.alive[number] for number in numbers)


def _reused(seen: Seen) -> Iterator[tuple[str, str]]:
    for norm in seen.norms:
        if norm.shared and norm.parameters and norm.calls > len(norm.layers):
            yield "norm-reused", f"{norm.path} normalises at {norm.calls} places"


def _queries(seen: Seen) -> Iterator[tuple[str, str]]:
    graph = seen.graph
    for path, applied in seen.applied:
        if applied.kind != "attn" or (sides := queries_and_keys(graph, applied.nodes)) is None:
            continue
        normed = {one for one in applied.nodes if graph.kind(one) == "norm" and _is_layout(graph, one, applied.entry)}
        query, key = (bool(normed & graph.behind(side, applied.entry)) for side in sides)
        if query and not key:
            yield "query-only-normed", f"{path}: queries read norm(x), keys read x"


def _is_layout(graph: Graph, norm: int, entry: int) -> bool:
    """Whether a norm reads the entry of its sublayer itself."""
    node = graph.inputs(norm)[0]
    while node > entry and (step := step_down(graph, node)) is not None and step.how == "view":
        node = step.below
    return node == entry


def _axes(seen: Seen) -> Iterator[tuple[str, str]]:
    graph = seen.graph
    for norm, nodes in zip(seen.norms, seen.norm_nodes, strict=True):
        shape = graph[graph.inputs(nodes[0])[0]].shape
        several = [axis for axis in norm.axes if shape[axis] > 1]
        features = _features(graph, nodes[0])
        if is_norm(graph, nodes[0]):
            wrong = len(several) > 1 or (features is not None and norm.width != features)
        else:  # of the channels of a convolution, a part at a time is usual
            wrong = norm.site not in ("elsewhere", "mid-conv") and any(axis > 1 - len(shape) for axis in several)
        if wrong and norm.site not in ("qk", "v", "qkv-latent"):
            axes = ", ".join(str(axis) for axis in norm.axes)
            yield (
                "norm-over-tokens",
                f"{norm.path}: its statistics are over axes {axes} of {shape}, not of one token's features",
            )
            if _is_causal(graph):
                yield "future-leaks", f"{norm.path}: a token's norm depends on later tokens of a causal model"


def _per_channel(seen: Seen) -> Iterator[tuple[str, str]]:
    """Batch and instance norms that take their statistics from the data at hand, over other tokens or examples."""
    graph = seen.graph
    told: set[str] = set()
    for number, node in enumerate(graph.nodes):
        path = graph.path(number)
        if graph.alive[number] and node.kind == "batchnorm" and node.attrs.get("batch") and path not in told:
            told.add(path)
            yield "norm-over-tokens", f"{path}: its statistics are of one feature, over all tokens"
            if _is_causal(graph):
                yield "future-leaks", f"{path}: a token's norm depends on later tokens of a causal model"


_MOVES: Final = ("transpose", "permute", "t", "movedim")
"""Views after which other axes are the last."""


def _features(graph: Graph, norm: int) -> int | None:
    """How many features the first product after a norm takes together."""
    node = norm
    for _ in range(12):
        users = graph.users[node]
        if not users:
            return None
        before, node = node, users[0]
        if graph.is_product(node):
            if graph.kind(node) != "matmul" or graph.inputs(node)[0] != before:  # tokens may be pooled by a product
                return None
            return graph[graph.inputs(node)[0]].shape[-1]
        step = step_down(graph, node)
        if step is None or step.how not in ("view", "shift"):
            return None
        name = graph[node].attrs.get("name")
        if name in ("cat", "slice", "pixel_unshuffle"):
            return None
        if name not in _MOVES and graph[node].shape[-1:] != graph[before].shape[-1:]:  # tokens are put together
            return None
    return None


def _is_causal(graph: Graph) -> bool:
    """Whether some attention of the program may not look ahead."""
    return any(
        graph.alive[number] and (node.attrs.get("causal") or node.attrs.get("name") in ("tril", "triu"))
        for number, node in enumerate(graph.nodes)
    )


def _sizes(seen: Seen) -> Iterator[tuple[str, str]]:
    common = [norm.eps for norm in seen.norms if norm.site not in ("qk", "v", "qkv-latent") and norm.eps]
    usual = max(common, key=common.count) if common else None
    for norm, nodes in zip(seen.norms, seen.norm_nodes, strict=True):
        if norm.width <= 2 and is_norm(seen.graph, nodes[0]):
            yield "width-tiny", f"{norm.path} normalises {norm.width} feature{'s' * (norm.width > 1)}"
        odd = not ODD_EPS[0] < norm.eps < ODD_EPS[1] or (usual is not None and not 1e-4 < norm.eps / usual < 1e4)
        if odd and norm.kind not in ("L2Norm", "DyT", "Derf"):
            yield "eps-unusual", f"{norm.path} has epsilon {norm.eps:g}" + (f", most have {usual:g}" if usual else "")
        if seen.graph[nodes[0]].attrs.get("dtype") in _HALF:
            yield "half-precision-statistics", f"{norm.path} takes its mean in {seen.graph[nodes[0]].attrs['dtype']}"


_HINTS: Final = (
    (re.compile(r"final|(?:^|_)ln_f$|last"), lambda site: site not in ("final", "elsewhere"), "the end of the stack"),
    (re.compile(r"embed"), lambda site: site not in ("embed", "elsewhere"), "the embeddings"),
    (
        re.compile(r"^(?:input|pre)(?:_|$|layer|norm)"),
        lambda site: site.endswith(("norm_out", "norm_sum")),
        "before a sublayer",
    ),
    (re.compile(r"^post(?:_|$|layer|norm)"), lambda site: site.endswith("norm_in"), "after a sublayer"),
    (re.compile(r"^output"), lambda site: site.endswith("norm_in"), "after a sublayer"),
)
"""What a norm's name says, where that is not so, and what it would be."""


def _names(seen: Seen) -> Iterator[tuple[str, str]]:
    told: set[tuple[str, str]] = set()
    for norm in seen.norms:
        name = norm.path.rpartition(".")[2].lower()
        for pattern, contradicts, place in _HINTS:
            if (
                pattern.search(name)
                and contradicts(norm.site)
                and "norm" in norm.site + name
                and (name, norm.site) not in told
            ):
                told.add((name, norm.site))
                yield "name-misleads", f"{norm.path} is named for {place} and stands at {norm.site}"


def _shared_layers(seen: Seen) -> Iterator[tuple[str, str]]:
    for stage in seen.stages:
        if stage.layers > 1 and stage.paths[0] and len(set(stage.paths)) == 1:
            yield "layer-reused", f"{stage.paths[0]} runs {stage.layers} times"
