"""Here lives Model: a stack of layers in PyTorch, and the encoder that it attends to where there is one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from normula.spec import Plan
from normula.spec.parameters import RELATIVE_BUCKETS
from normula.torch.context import Cache, Context, context
from normula.torch.layer import Factory, part
from normula.torch.state import check_state


@dataclass(frozen=True, slots=True)
class States:
    """All that a pass shows.

    Attributes:
        stream: depth + 1 values of x, each (B, T, D): before the first layer and after each, as they are.
        closed: what leaves the stack, after the final norm where there is one.
        output: what the head makes of it; `closed` itself where there is no head.
    """

    stream: tuple[Tensor, ...]
    closed: Tensor
    output: Tensor


class Model(nn.Module):
    """A stack of layers made from a spec; see `build`.

    Attributes:
        spec: what it was built from.
        plan: its steps and parameters.
        encoder: the model whose output `cross` attends to, or None.
        training_step: updates made so far, for formulas that read `step`; a trainer fills it in.
        checkpointing: whether layers are computed again in the backward pass instead of keeping their values.
    """

    def __init__(self, written: Plan, modules: Mapping[str, Factory], *, is_encoder: bool = False) -> None:
        super().__init__()
        self.plan, self.spec, self.checkpointing = written, written.spec, False
        self.training_step: Tensor
        self.register_buffer("training_step", torch.zeros((), device="cpu"), persistent=False)
        spec = self.spec
        self.encoder = None if written.encoder is None else Model(written.encoder, modules, is_encoder=True)
        self.embed = part(written, [written.embed], "embed", modules)
        if spec.vocab is not None:
            self.embed.add_module("tokens", _table(spec.vocab, spec.width))
        if spec.features is not None:
            self.embed.add_module("features", nn.Linear(spec.features, spec.width))
        if spec.positions == "learned":
            self.embed.add_module("positions", _table(spec.context, spec.width))
        self.relative = _table(RELATIVE_BUCKETS, spec.heads) if spec.positions == "relative" else None
        for name, start in written.starts:
            self.add_module(f"start_{name}", part(written, [start], f"start_{name}", modules))
        self.layers = nn.ModuleList(
            part(written, steps, f"layers.{i}", modules) for i, steps in enumerate(written.layers)
        )
        self.final = part(written, [written.final], "final", modules)
        out = None if is_encoder else spec.classes or spec.vocab
        self.head = None if out is None or spec.tied else nn.Linear(spec.width, out, bias=False)
        self.reads_out = out is not None

    def forward(
        self,
        inputs: Float[Tensor, "B T _"] | Int[Tensor, "B T"],
        mask: Bool[Tensor, "B S"] | None = None,
        *,
        source: Tensor | None = None,
        source_mask: Bool[Tensor, "B R"] | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Run the stack.

        Args:
            inputs: vectors (B, T, D); with a vocabulary ids (B, T); with features values (B, T, P).
            mask: true where a token is real; None where all are.
            source: what goes into the encoder; it can be left out where the cache has seen it.
            source_mask: true where a token of the source is real; the cache remembers it.
            cache: keys and values of the tokens before, in a causal stack; the new ones are added to it.

        Returns:
            (B, T, D); logits (B, T, V) with a vocabulary; (B, classes) for a classifier.
        """
        x, streams, around = self.begin(inputs, mask, source, source_mask, cache)
        for layer in self.layers:
            if self.checkpointing and cache is None and torch.is_grad_enabled():  # twice would extend the cache twice
                streams = checkpoint(layer, *streams, around, use_reentrant=False)
            else:
                streams = layer(*streams, around)
        if cache is not None:
            cache.length += x.shape[1]
        return self.read_out(self.final(*streams, around)[0], mask)

    def states(
        self,
        inputs: Tensor,
        mask: Tensor | None = None,
        *,
        source: Tensor | None = None,
        source_mask: Tensor | None = None,
    ) -> States:
        """Run the stack and keep every value of the stream; arguments as for a pass, without a cache."""
        _, streams, around = self.begin(inputs, mask, source, source_mask)
        stream = [streams[0]]
        for layer in self.layers:
            streams = layer(*streams, around)
            stream.append(streams[0])
        closed = self.final(*streams, around)[0]
        return States(tuple(stream), closed, self.read_out(closed, mask))

    def begin(
        self,
        inputs: Tensor,
        mask: Tensor | None = None,
        source: Tensor | None = None,
        source_mask: Tensor | None = None,
        cache: Cache | None = None,
    ) -> tuple[Tensor, tuple[Tensor, ...], Context]:
        """The embedded input, the streams as they enter the first layer (x first), and the context of the pass."""
        x = self.embedded(inputs, 0 if cache is None else cache.length)
        around = self.around(x, mask, source, source_mask, cache)
        return x, self.start(x, around), around

    def embedded(self, inputs: Tensor, first: int = 0) -> Tensor:
        """Vectors as they are; ids or values as their embedding, plus that of their positions where these are learned.

        Args:
            inputs: (B, T, D), (B, T) or (B, T, P).
            first: position of the first token.

        Raises:
            ValueError: another shape than the spec has, or more tokens than there are positions.
        """
        spec = self.spec
        if spec.vocab is not None:
            if inputs.ndim != 2 or inputs.is_floating_point():
                came = f"{inputs.dtype} {tuple(inputs.shape)}"
                raise ValueError(f"the input is a (B, T) tensor of ids, this one has {came}")
            x: Tensor = self.embed.get_submodule("tokens")(inputs)
        else:
            wanted = spec.features or spec.width
            if inputs.ndim != 3 or inputs.shape[-1] != wanted:
                raise ValueError(f"the input has the shape (B, T, {wanted}), this one has {tuple(inputs.shape)}")
            if spec.features is None:
                return inputs
            linear = self.embed.get_submodule("features")
            x = linear(inputs.to(next(linear.parameters()).dtype))  # of data, whose type is not the model's
        if spec.positions == "learned":
            last = first + inputs.shape[1]
            if last > spec.context:
                raise ValueError(
                    f"the positions reach {spec.context} tokens, the input has {last}; build with a larger context"
                )
            x = x + self.embed.get_submodule("positions")(torch.arange(first, last, device=inputs.device))
        return F.dropout(x, spec.dropout, self.training)

    def around(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        source: Tensor | None = None,
        source_mask: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Context:
        """The context of a pass over the embedded x.

        Raises:
            ValueError: a mask of another shape, a source without an encoder or the other way round, a cache in a
                stack that is not causal or has classes.
        """
        seen = 0 if cache is None else cache.length
        if cache is not None and not self.spec.causal:
            raise ValueError("a cache needs a causal stack: here the tokens before depend on those that come after")
        if cache is not None and self.spec.classes is not None:
            raise ValueError("a classifier reads the mean of all tokens, and a cache leaves it the new ones only")
        if mask is not None and mask.shape != (x.shape[0], seen + x.shape[1]):
            wanted = (x.shape[0], seen + x.shape[1])
            raise ValueError(f"a mask has the shape (B, T) = {wanted}, this one has {tuple(mask.shape)}")
        if (source is not None and self.encoder is None) or (source is None and self.encoder is not None and not seen):
            raise ValueError("a source goes with an encoder: give both or neither")
        if source_mask is not None and source is None:
            raise ValueError("a source_mask says which tokens of a source are real; give the source too")
        memory = None
        if self.encoder is not None and source is not None:
            if source_mask is not None and source_mask.shape != source.shape[:2]:
                raise ValueError(
                    f"a source_mask has the shape (B, S) = {tuple(source.shape[:2])}, not {tuple(source_mask.shape)}"
                )
            memory = None if seen else self.encoder(source, source_mask)  # the cache holds what was made of it
        if cache is not None:
            source_mask = cache.source_mask if seen else source_mask
            cache.source_mask = source_mask
        relative = None if self.relative is None else self.relative.weight
        return context(self.spec, x, mask, relative, memory, source_mask, cache, self.training_step)

    def start(self, x: Tensor, around: Context) -> tuple[Tensor, ...]:
        """The streams as they enter the first layer, x first."""
        others = (None,) * len(self.plan.starts)
        x = self.embed(x, *others, around)[0]
        return (x, *(self.get_submodule(f"start_{name}")(x, *others, around)[0] for name, _ in self.plan.starts))

    def read_out(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """The head, on each token or, for a classifier, on the mean of the real ones."""
        if self.spec.classes is not None and self.reads_out:
            share = torch.ones_like(x[..., 0]) if mask is None else mask.to(x.dtype)
            count = share.sum(dim=1, keepdim=True).clamp(min=1)  # the mean of no token is 0
            x = torch.einsum("bt,btd->bd", share / count, x)
        if not self.reads_out:
            return x
        if self.head is None:
            tokens = self.embed.get_submodule("tokens")
            assert isinstance(tokens, nn.Embedding)
            return F.linear(x, tokens.weight)
        logits: Tensor = self.head(x)
        return logits

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:  # the type of torch's answer has no public name
        """Load weights by name.

        Raises:
            StateError: the names or shapes are of another spec; the message says which sites differ.
        """
        if strict:
            check_state(self.state_dict(), state_dict, self.spec)
        return super().load_state_dict(state_dict, strict=strict, assign=assign)

    def extra_repr(self) -> str:
        """The formula."""
        return f"{self.spec.placed.name}: {self.spec.placed.formula}"


def _table(symbols: int, width: int) -> nn.Embedding:
    """An embedding whose weights come later: drawing them on the meta device would load PyTorch's compiler."""
    return nn.Embedding(symbols, width, _weight=torch.empty(symbols, width))
