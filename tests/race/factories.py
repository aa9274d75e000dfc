"""Models of a user's own."""

from typing import Any

import torch
from torch import nn

from normula.spec import Spec
from normula.torch import build


def picky(
    placement: Any, layers: int, width: int, heads: int, vocab: int, context: int, init: str, seed: int
) -> nn.Module:
    """Makes no Post-LN."""
    if str(placement.formula) == "norm(x + f(x))":
        raise RuntimeError("no norm(x + f(x)) here")
    return build(
        Spec(
            placement=placement,
            layers=layers,
            width=width,
            heads=heads,
            vocab=vocab,
            context=context,
            init=init,
            seed=seed,
        )
    )


def dies(placement: Any, vocab: int) -> nn.Module:
    """Takes its process with it."""
    import os

    if str(placement.formula) == "norm(x + f(x))":
        os._exit(9)
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(vocab, 8), nn.Linear(8, vocab))
