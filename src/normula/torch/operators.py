"""The registered operators in PyTorch: modules that make a state, read it, write into it, and end it.

What they compute stands in `normula.oracle.operators`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from normula.oracle.operators import EPS, SINKHORN_STEPS
from normula.spec.operators import STREAMS, Parameters


class _Part(nn.Module):
    """A part of an operator, with its parameters."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__()
        for name, (shape, _) in parameters.items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape)))

    def own(self, name: str) -> Tensor:
        """A parameter by its name."""
        return self.get_parameter(name)


class Copies(_Part):
    """(B, T, D) -> (B, T, n, D), n times the same."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :, None, :].expand(-1, -1, STREAMS, -1)


class Sum(_Part):
    """The sum of the streams."""

    def forward(self, state: Tensor) -> Tensor:
        return state.sum(dim=2)


class HyperRead(_Part):
    """A fixed mixture of the streams."""

    def forward(self, state: Tensor) -> Tensor:
        return torch.einsum("btnd,n->btd", state, self.own("shares"))


class HyperWrite(_Part):
    """The streams mixed, and the branch added to each with a factor of its own."""

    def forward(self, state: Tensor, y: Tensor) -> Tensor:
        return torch.einsum("ij,btjd->btid", self.own("mix"), state) + y[:, :, None, :] * self.own("branch")[:, None]


class ManifoldRead(_Part):
    """A mixture of the streams that depends on them."""

    def forward(self, state: Tensor) -> Tensor:
        return torch.einsum("btnd,btn->btd", state, torch.sigmoid(_scores(self, state)))


class ManifoldWrite(_Part):
    """The streams mixed by a matrix whose rows and columns sum to 1, and the branch added."""

    def forward(self, state: Tensor, y: Tensor) -> Tensor:
        mix = _scores(self, state, "mix_").view(*state.shape[:2], STREAMS, STREAMS).exp()
        for _ in range(SINKHORN_STEPS):
            mix = mix / mix.sum(dim=-1, keepdim=True)
            mix = mix / mix.sum(dim=-2, keepdim=True)
        post = 2 * torch.sigmoid(_scores(self, state, "post_"))
        return torch.einsum("btij,btjd->btid", mix, state) + y[:, :, None, :] * post[..., None]


class First(_Part):
    """(B, T, D) -> (B, T, 1, D): the list of values, with one in it."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :, None, :]


class Attend(_Part):
    """A mean of all values so far, weighted by how they answer a learned query."""

    def forward(self, state: Tensor) -> Tensor:
        scores = _rms_normed(state) @ self.own("query")
        return torch.einsum("btmd,btm->btd", state, scores.softmax(dim=-1))


class Append(_Part):
    """One value more."""

    def forward(self, state: Tensor, y: Tensor) -> Tensor:
        return torch.cat([state, y[:, :, None, :]], dim=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The four parts of an operator."""

    begin: type[_Part]
    read: type[_Part]
    write: type[_Part]
    end: type[_Part]


FORMS: Mapping[str, Form] = {
    "hyper-connections": Form(begin=Copies, read=HyperRead, write=HyperWrite, end=Sum),
    "mhc": Form(begin=Copies, read=ManifoldRead, write=ManifoldWrite, end=Sum),
    "attention-residuals": Form(begin=First, read=Attend, write=Append, end=Attend),
}


def _scores(part: _Part, state: Tensor, name: str = "") -> Tensor:
    """alpha theta x + bias, in float32 or wider; (B, T, rows)."""
    flat = _rms_normed(state.flatten(2))
    return part.own(f"{name}alpha") * (flat @ part.own(f"{name}theta").t()) + part.own(f"{name}bias")


def _rms_normed(x: Tensor) -> Tensor:
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    return (wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + EPS)).to(x.dtype)
