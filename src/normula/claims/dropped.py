"""The layer-drop test: what a trained stack loses when one of its layers is left out.

Li, Yin and Liu, Mix-LN, 2024, and Sun et al., The Curse of Depth in Large Language Models, 2025, count points of a
benchmark; here it is the cross-entropy of held-out data, in nats.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from normula import oracle
from normula.data import Batch
from normula.framework import room
from normula.oracle.norms import Array
from normula.race import Entry
from normula.record.weights import read_weights
from normula.spec import Spec

SEQUENCES = 64
"""Held-out sequences that the losses are taken over."""


def layer_drop(entry: Entry) -> tuple[float, ...]:
    """Train, and measure: the loss of the whole stack, then the loss without each layer, first to last, in nats."""
    weights = trained(entry)
    batch = entry.of.validation(SEQUENCES)
    stacks = [weights, *(without(weights, layer) for layer in range(entry.spec.layers))]
    return tuple(held_out(entry.spec, stack, batch) for stack in stacks)


def trained(entry: Entry) -> dict[str, Array]:
    """The weights that a run ends with, by the names of the plan."""
    frame = room(entry.framework)
    model = frame.BUILDERS[{"flax": "nnx"}.get(entry.framework, entry.framework)](entry.spec)
    frame.train(model, entry.of, entry.recipe, device=entry.device)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trained.safetensors"
        frame.save(model, path)
        return {name: array.astype(np.float64) for name, array in read_weights(path)[0].items()}


def without(weights: Mapping[str, Array], layer: int) -> dict[str, Array]:
    """The same weights with all of one layer's at 0: where x is added to its branches, it becomes the identity."""
    return {name: 0 * array if name.startswith(f"layers.{layer}.") else array for name, array in weights.items()}


def held_out(spec: Spec, weights: Mapping[str, Array], batch: Batch) -> float:
    """Mean cross-entropy in float64, of what is scored."""
    logits = oracle.run(spec, weights, batch.inputs).output
    scored = batch.targets >= 0
    shifted = logits[scored] - logits[scored].max(axis=-1, keepdims=True)
    chosen = shifted[np.arange(len(shifted)), batch.targets[scored]]
    return float((np.log(np.exp(shifted).sum(axis=-1)) - chosen).mean())
