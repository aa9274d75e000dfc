"""Sizes of tensors, in double precision: norm, root mean square, cosines between tokens."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def length(x: Tensor | None) -> float:
    """Norm over everything; 0 for a gradient that never came."""
    return 0.0 if x is None else torch.linalg.vector_norm(x.double()).item()


def rms(x: Tensor) -> float:
    """Root mean square over everything."""
    return x.double().square().mean().sqrt().item()


def token_cosine(x: Tensor) -> float:
    """Mean cosine between two different tokens of a sequence, (B, T, D); nan for a single token."""
    T = x.shape[1]
    if T == 1:
        return math.nan
    units = torch.nn.functional.normalize(x.double(), dim=-1)
    # less each token with itself: 1, or 0 for a token of zeros, which is like no other
    pairs = units.sum(dim=1).square().sum(dim=-1) - units.square().sum(dim=(1, 2))
    return (pairs / (T * (T - 1))).mean().item()


def step_cosine(before: Tensor, after: Tensor) -> float:
    """Mean cosine between a token before and after a step, features last."""
    return torch.cosine_similarity(before.double(), after.double(), dim=-1).mean().item()


def swallowed(branch: Tensor | None, skip: Tensor | None) -> float:
    """Share of a branch's numbers that a stream in bfloat16 would lose; see `normula.flow.sizes`. 0 for no sum."""
    if branch is None or skip is None:
        return 0.0
    _, exponents = torch.frexp(skip.double())
    lost = (branch.double().abs() < torch.exp2((exponents - 9).double())) & (skip != 0)
    added = branch != 0
    return lost[added].double().mean().item() if added.any() else 0.0
