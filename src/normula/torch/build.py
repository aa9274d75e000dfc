"""Spec to PyTorch module."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from normula.oracle import weights as initial_weights
from normula.spec import Plan, Spec, plan
from normula.torch.layer import Factory, part


class Model(nn.Module):
    """A stack of layers made from a spec; see `build`.

    Attributes:
        spec: what it was built from.
        plan: its steps and parameters.
    """

    def __init__(self, written: Plan, modules: Mapping[str, Factory]) -> None:
        super().__init__()
        self.plan, self.spec = written, written.spec
        spec = self.spec
        self.embed = part(written, [written.embed], "embed", modules)
        if spec.vocab is not None:
            self.embed.add_module("tokens", nn.Embedding(spec.vocab, spec.width))
            self.embed.add_module("positions", nn.Embedding(spec.context, spec.width))
        for name, start in written.starts:
            self.add_module(f"start_{name}", part(written, [start], f"start_{name}", modules))
        self.layers = nn.ModuleList(
            part(written, steps, f"layers.{i}", modules) for i, steps in enumerate(written.layers)
        )
        self.final = part(written, [written.final], "final", modules)
        out = spec.classes or spec.vocab
        self.head = None if out is None else nn.Linear(spec.width, out, bias=False)

    def forward(
        self, inputs: Float[Tensor, "B T D"] | Int[Tensor, "B T"], mask: Bool[Tensor, "B T"] | None = None
    ) -> Tensor:
        """Run the stack.

        Args:
            inputs: vectors (B, T, D), or ids (B, T) where the spec has a vocabulary.
            mask: true where a token is real; None where all are.

        Returns:
            (B, T, D); logits (B, T, V) with a vocabulary; (B, classes) for a classifier.
        """
        x = self.embedded(inputs)
        if mask is not None and mask.shape != x.shape[:2]:
            raise ValueError(f"a mask has the shape (B, T) = {tuple(x.shape[:2])}, this one has {tuple(mask.shape)}")
        streams = self.start(x)
        visible = None if mask is None else self.visible(mask)
        for layer in self.layers:
            streams = layer(*streams, visible)
        return self.read_out(self.final(*streams)[0], mask)

    def embedded(self, inputs: Tensor) -> Tensor:
        """Vectors as they are; ids as their embedding plus that of their positions."""
        spec = self.spec
        if spec.vocab is None:
            if inputs.ndim != 3 or inputs.shape[-1] != spec.width:
                raise ValueError(f"the input has the shape (B, T, {spec.width}), this one has {tuple(inputs.shape)}")
            return inputs
        if inputs.ndim != 2 or inputs.is_floating_point():
            raise ValueError(f"the input is a (B, T) tensor of ids, this one has {inputs.dtype} {tuple(inputs.shape)}")
        T = inputs.shape[1]
        if spec.context < T:
            raise ValueError(
                f"the positions reach {spec.context} tokens, the input has {T}; build with a larger context"
            )
        tokens, positions = self.embed.get_submodule("tokens"), self.embed.get_submodule("positions")
        x: Tensor = tokens(inputs) + positions(torch.arange(T, device=inputs.device))
        return F.dropout(x, spec.dropout, self.training)

    def start(self, x: Tensor) -> tuple[Tensor, ...]:
        """The streams as they enter the first layer, x first."""
        placeholders = (None,) * len(self.plan.starts)
        x = self.embed(x, *placeholders)[0]
        return (x, *(self.get_submodule(f"start_{name}")(x, *placeholders)[0] for name, _ in self.plan.starts))

    def visible(self, mask: Tensor) -> Tensor:
        """Which keys each query may see: (B, 1, 1, T), or (B, 1, T, T) where the stack is causal."""
        keys = mask.bool()[:, None, None, :]
        if not self.spec.causal:
            return keys
        T = mask.shape[1]
        return keys & torch.ones(T, T, dtype=torch.bool, device=mask.device).tril()

    def read_out(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """The head, on each token or, for a classifier, on the mean of the real ones."""
        if self.spec.classes is not None:
            share = torch.ones_like(x[..., 0]) if mask is None else mask.to(x.dtype)
            x = torch.einsum("bt,btd->bd", share / share.sum(dim=1, keepdim=True), x)
        return x if self.head is None else self.head(x)

    def extra_repr(self) -> str:
        return f"{self.spec.placed.name}: {self.spec.placed.formula}"


def build(spec: Spec, modules: Mapping[str, Factory] | None = None) -> Model:
    """A PyTorch model of a spec, in the default dtype, with the spec's initial weights.

        >>> import torch
        >>> model = build(Spec(placement="pre", layers=2, width=8, heads=2))
        >>> model(torch.zeros(1, 3, 8)).shape
        torch.Size([1, 3, 8])

    Args:
        spec: what to build.
        modules: for sublayers of your own, a function from the layer (from 0) to a module, such as
            `{"mlp": lambda layer: torch.nn.Linear(64, 64)}`; such a module keeps the weights it was made with.

    Raises:
        ValueError: the spec cannot be built; the message says why.
    """
    modules = dict(modules or {})
    for word, factory in modules.items():
        if isinstance(factory, nn.Module):
            raise ValueError(
                f"modules[{word!r}] is one module, and every layer needs its own; give a function such as "
                f"lambda layer: {type(factory).__name__}(...)"
            )
    written = plan(spec, given=modules)
    unused = set(modules) - {step.kind(call) for steps in written.layers for step in steps for call in step.sublayers}
    if unused:
        raise ValueError(
            f"no layer has a sublayer {', '.join(sorted(unused))}; the module given for it would do nothing"
        )
    with torch.device("meta"):  # no storage, no draws: the weights come from the oracle
        model = Model(written, modules)
    dtype = torch.get_default_dtype()
    start = {name: torch.tensor(array, dtype=dtype) for name, array in initial_weights(spec, given=modules).items()}
    own = model.state_dict()
    model.load_state_dict({name: start.get(name, own[name]) for name in own}, assign=True)
    return model
