"""What attention reads besides its input: who sees whom, positions, the encoder's memory, the cache."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from normula.spec import Spec
from normula.spec.parameters import RELATIVE_REACH
from normula.spec.positions import relative_buckets, rotary_angles


@dataclass(slots=True)
class Cache:
    """Keys and values of the tokens that a causal stack has seen, to go on from there.

    Pass the same cache to each call; `length` is the number of tokens in it. Where there is an encoder, the keys and
    values of its memory are here too, and `source_mask` says which of these are real.
    """

    keys: dict[str, Tensor] = field(default_factory=dict)
    values: dict[str, Tensor] = field(default_factory=dict)
    source_mask: Tensor | None = None
    length: int = 0

    def extended(self, place: str, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values of one attention, (B, H, S, K), with the new ones at the end."""
        if place in self.keys:
            k, v = torch.cat([self.keys[place], k], dim=2), torch.cat([self.values[place], v], dim=2)
        self.keys[place], self.values[place] = k, v
        return k, v


class Context(NamedTuple):
    """The same for every layer of one pass.

    Attributes:
        visible: which keys each query sees, true or false or added to the scores, broadcast to (B, H, T, S); None
            for all, or where the stack is causal for all up to the query.
        turns: cosines and sines of the rotary angles, each (T, K / 2).
        memory, memory_visible: what `cross` attends to, and which of it is real.
        cache: keys and values of earlier tokens.
        training_step: what `step` stands for, a number in a tensor.
    """

    visible: Tensor | None = None
    turns: tuple[Tensor, Tensor] | None = None
    memory: Tensor | None = None
    memory_visible: Tensor | None = None
    cache: Cache | None = None
    training_step: Tensor | None = None


def context(
    spec: Spec,
    x: Tensor,
    mask: Tensor | None,
    relative: Tensor | None,
    memory: Tensor | None,
    memory_mask: Tensor | None,
    cache: Cache | None,
    training_step: Tensor,
) -> Context:
    """The context of a pass over x, (B, T, D).

    Args:
        spec: the stack.
        x: the embedded input.
        mask: (B, T), true at real tokens; with a cache (B, S) for all tokens so far.
        relative: the learned table of relative positions, (buckets, H).
        memory, memory_mask: the encoder's output, and which of it is real.
        cache: of the tokens before.
        training_step: updates made so far.
    """
    T, first = x.shape[1], 0 if cache is None else cache.length
    S = first + T
    visible = None if mask is None else mask.bool()[:, None, None, :]
    needs_causal = spec.causal and (visible is not None or relative is not None or (first > 0 and T > 1))
    if needs_causal:
        before = torch.ones(T, S, dtype=torch.bool, device=x.device).tril(first)
        visible = before if visible is None else visible & before
    if relative is not None:
        bias = relative[_buckets(T, S, spec.causal, x.device)].permute(2, 0, 1)[None].to(x.dtype)
        visible = bias if visible is None else bias.masked_fill(~visible, -torch.inf)
    turns = None
    if spec.positions == "rotary":
        one = torch.as_tensor(rotary_angles(1, spec.head_width, spec.rotary_base, first=1)[0], device=x.device)
        angles = torch.outer(torch.arange(first, S, dtype=one.dtype, device=x.device), one)
        turns = (angles.cos().to(x.dtype), angles.sin().to(x.dtype))
    memory_visible = None if memory_mask is None else memory_mask.bool()[:, None, None, :]
    return Context(visible, turns, memory, memory_visible, cache, training_step)


def _buckets(queries: int, keys: int, causal: bool, device: torch.device) -> Tensor:
    """The bucket of each pair, (T, S), for the last T of S tokens; looked up, so that T and S may be symbols."""
    reach = RELATIVE_REACH  # whatever lies further shares a bucket with it
    table = torch.as_tensor(relative_buckets(1, 2 * reach + 1, causal=causal, first=reach)[0], device=device)
    place = torch.arange(keys, device=device)
    distance = place - place[keys - queries :, None]
    return table[distance.clamp(-reach, reach) + reach]
