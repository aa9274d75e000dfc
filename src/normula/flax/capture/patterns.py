"""What several operations together mean: means, softmax, gains that were multiplied into a norm's root, biases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from normula.flax.capture.recorder import Held, Recorder, plain

if TYPE_CHECKING:
    from normula.flax.capture.operation import Operation

MASKS: Final = frozenset(("mask",))


def as_mean(recorder: Recorder, value: int, number: int, *, times: bool) -> tuple[int, tuple[int, ...]] | None:
    """What a mean is of, and its axes, where a sum is divided by how many there are."""
    count = recorder.number_of(number)
    total = recorder.nodes[recorder.through(value)]
    if not count or total.kind != "reduce" or total.attrs["name"] != "sum":
        return None
    source, axes = total.inputs[0], total.attrs["axes"]
    length = float(np.prod([recorder.nodes[source].shape[axis] for axis in axes]))
    return (source, axes) if abs((1 / count if times else count) - length) < 1e-6 * length else None


def is_variance(recorder: Recorder, node: int) -> bool:
    """Whether a value cannot be negative but by rounding: a mean of squares, perhaps less the squared mean."""
    node = recorder.through(node)
    one = recorder.nodes[node]
    if one.kind == "sub":
        mean = recorder.square(one.inputs[1])
        return _is_mean_square(recorder, one.inputs[0]) and mean is not None and _is_mean(recorder, mean)
    return _is_mean_square(recorder, node)


def _is_mean(recorder: Recorder, node: int) -> bool:
    one = recorder.nodes[recorder.through(node)]
    return one.kind == "reduce" and one.attrs["name"] == "mean"


def _is_mean_square(recorder: Recorder, node: int) -> bool:
    one = recorder.nodes[recorder.through(node)]
    return _is_mean(recorder, node) and recorder.square(one.inputs[0]) is not None


def as_bias(recorder: Recorder, product: int, bias: int) -> bool:
    """Whether a sum is a learned product with its bias, one number for each of its features."""
    one = recorder.nodes[product]
    if one.kind not in ("matmul", "conv") or len(one.inputs) > 2 or one.attrs.get("turned"):
        return False
    if not recorder.is_weight(one.inputs[1]) or not recorder.is_weight(bias):
        return False
    return sum(length > 1 for length in recorder.nodes[bias].shape) <= one.attrs["features"]


def as_normed(a: Operation, value: int, factor: int, whole: Held) -> int | None:
    """A value times (1/root * gain), as Flax has it: first the root, then the gain. Or a batch norm."""
    recorder = a.recorder
    node = recorder.through(factor)
    if not recorder.is_given(value):
        return None
    if not recorder.is_given(factor):
        return a.emit("batchnorm", (value, factor)) if _is_batch_root(recorder, node) else None
    if node not in recorder.factors:
        return None
    root, gain = recorder.factors[node]
    if not _is_inverse_root(recorder, root.node) or recorder.nodes[value].shape != tuple(a.avals[0].shape):
        return None
    inner = recorder.emit(
        "mul",
        (value, recorder.compact.get(root.node, root.node)),
        a.avals[0],
        lambda: plain(whole.value) * plain(root.value),
    )
    return a.emit("mul", (inner, recorder.compact.get(gain.node, gain.node)))


def _is_inverse_root(recorder: Recorder, node: int) -> bool:
    one = recorder.nodes[recorder.through(node)]
    if one.kind == "rsqrt":
        return True
    below = one.inputs[-1] if one.kind == "div" or one.attrs.get("name") == "reciprocal" else None
    return below is not None and recorder.nodes[recorder.through(below)].kind == "sqrt"


def _is_batch_root(recorder: Recorder, node: int) -> bool:
    """Whether a factor is the inverse root of a recorded variance, perhaps times a gain."""
    one = recorder.nodes[node]
    if one.kind == "mul":
        return any(_is_batch_root(recorder, recorder.through(part)) for part in one.inputs)
    return one.kind == "rsqrt" and _has_buffer(recorder, node)


def _has_buffer(recorder: Recorder, node: int) -> bool:
    one = recorder.nodes[node]
    return one.kind == "buffer" or any(_has_buffer(recorder, part) for part in one.inputs)


def as_softmax(recorder: Recorder, value: int, total: int) -> int | None:
    """The scores, where a quotient is exp(scores - their largest) / its own sum; masks may stand between."""
    exponential = recorder.through(value, MASKS)
    added = _summed_exponential(recorder, total)
    if added is None or added[0] != exponential:
        return None
    scores = _unshifted(recorder, recorder.nodes[exponential].inputs[0])
    _queries_first(recorder, scores, added[1])
    return scores


def as_exponential(recorder: Recorder, exponent: int) -> int | None:
    """The scores, where an exponential is of scores - log(sum(exp(scores))): a softmax by way of its logarithm."""
    one = recorder.nodes[recorder.through(exponent, MASKS)]
    if one.kind != "sub":
        return None
    below = recorder.nodes[recorder.through(one.inputs[1], MASKS)]
    for part in below.inputs if below.kind == "add" else one.inputs[1:]:
        logarithm = recorder.nodes[recorder.through(part, MASKS)]
        if logarithm.kind == "pointwise" and logarithm.attrs["name"] == "log":
            added = _summed_exponential(recorder, logarithm.inputs[0])
            scores = _unshifted(recorder, one.inputs[0])
            if added is not None and _bare(recorder, recorder.nodes[added[0]].inputs[0]) == _bare(recorder, scores):
                _queries_first(recorder, scores, added[1])
                return scores
    return None


def _bare(recorder: Recorder, exponent: int) -> int:
    return recorder.through(_unshifted(recorder, exponent), MASKS)


def _summed_exponential(recorder: Recorder, total: int) -> tuple[int, tuple[int, ...]] | None:
    """The exponential that a sum is of, and its axes."""
    added = recorder.nodes[recorder.through(total, MASKS)]
    if added.kind != "reduce" or added.attrs["name"] != "sum":
        return None
    exponential = recorder.through(added.inputs[0], MASKS)
    return (exponential, added.attrs["axes"]) if is_exponential(recorder, exponential) else None


def is_exponential(recorder: Recorder, node: int) -> bool:
    """Whether a value is an exponential, masked or not."""
    one = recorder.nodes[recorder.through(node, MASKS)]
    return one.kind == "pointwise" and one.attrs["name"] == "exp"


def _unshifted(recorder: Recorder, exponent: int) -> int:
    """Scores before their largest is taken from them."""
    shifted = recorder.nodes[recorder.through(exponent, MASKS)]
    if shifted.kind == "sub":
        highest = recorder.nodes[recorder.through(shifted.inputs[1], MASKS)]
        same = highest.kind == "reduce" and highest.attrs["name"] == "max"
        if same and recorder.through(highest.inputs[0], MASKS) == recorder.through(shifted.inputs[0], MASKS):
            return shifted.inputs[0]
    return exponent


def _queries_first(recorder: Recorder, scores: int, axes: tuple[int, ...]) -> None:
    """Where the scores are a product of keys with queries, turn it: a softmax goes over the keys."""
    if len(axes) != 1:
        return
    node, axis = scores, axes[0]
    while True:
        one = recorder.nodes[node]
        if one.kind == "matmul":
            break
        if one.kind == "view" and "order" in one.attrs:
            axis = one.attrs["order"][axis]
        elif one.kind == "view" and one.shape != (before := recorder.nodes[one.inputs[0]].shape):
            found = _axis_before(before, one.shape, axis)
            if found is None:
                return
            axis = found
        elif one.kind not in ("view", "add", "sub", "mul", "div", "pointwise"):
            return
        candidates = [part for part in one.inputs if recorder.is_given(part)]
        if one.kind != "view":
            candidates = [part for part in candidates if recorder.nodes[part].shape == one.shape]
        if not candidates:
            return
        node = candidates[0]
    batch, (first, _) = one.attrs["batch"], one.attrs["free"]
    if not one.attrs["turned"] and batch <= axis < batch + first:
        left, right = one.inputs[:2]
        recorder.turn(node, (right, left))


def _axis_before(old: tuple[int, ...], new: tuple[int, ...], axis: int) -> int | None:
    """The axis of an array that after a reshape is this one; None where it was merged or divided."""
    after = int(np.prod(new[axis + 1 :]))
    for place, length in enumerate(old):
        if length == new[axis] and int(np.prod(old[place + 1 :])) == after:
            return place
    return None
