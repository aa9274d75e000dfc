"""Weights on disk with the formula attached; `normula.flax` reads the same files."""

from __future__ import annotations

import os

import torch

from normula.record.weights import check_formula, read_weights, write_weights
from normula.spec.stamp import about, stamp
from normula.torch.model import Model


def save(model: Model, path: str | os.PathLike[str]) -> None:
    """Write a model's parameters to a safetensors file, with its spec and formula."""
    arrays = {name: value.detach().cpu().numpy() for name, value in model.state_dict().items()}
    write_weights(path, arrays, about(model.spec))


def load(model: Model, path: str | os.PathLike[str], *, allow: bool = False) -> None:
    """Read a model's parameters from a safetensors file, also from one written by `normula.flax`.

    Args:
        model: takes them in.
        path: the file.
        allow: whether weights of another formula are taken where their shapes fit.

    Raises:
        WeightsError: they are of another formula; the message names both.
        StateError: their names or shapes do not fit.
    """
    arrays, said = read_weights(path)
    if not allow:
        check_formula(said["formula"], stamp(model.spec), os.fspath(path))
    model.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
