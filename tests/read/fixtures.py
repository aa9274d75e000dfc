"""The table of models that `read` is held against: each line a model, its inputs, and the formula of its layers.

Only the table's own words are needed to build a line: a class, a small configuration, and a shape for each argument.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

ZOO = Path(__file__).parent / "zoo"
FILES = ("text", "decoders", "vision_audio")


def lines(*files: str) -> Iterator[dict[str, Any]]:
    """The lines of the table, of some files or of all."""
    for name in files or FILES:
        for line in (ZOO / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
            if line.strip():
                yield {**json.loads(line), "file": name}


def line(identity: str) -> dict[str, Any]:
    return next(one for one in lines() if one["id"] == identity)


def built(entry: dict[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The model of a line with random weights, in evaluation mode, with the arguments of its forward."""
    warnings.simplefilter("ignore")
    import torch

    torch.manual_seed(0)
    if entry["source"] == "timm":
        import timm

        model = timm.create_model(entry["cls"], pretrained=False, **entry["config"])
    else:
        import transformers

        transformers.logging.set_verbosity_error()
        kind = getattr(transformers, entry["cls"])
        model = kind(kind.config_class(**entry["config"]))
    inputs = {name: _input(name, shape) for name, shape in entry["inputs"].items()}
    if entry["source"] == "timm":
        return model.eval(), tuple(inputs.values()), {}
    return model.eval(), (), inputs


def _input(name: str, shape: list[int]) -> Any:
    """Ids where the name ends so, ones for a mask, normal numbers for the rest."""
    import torch

    if name.endswith("ids"):
        return torch.randint(3, 100, shape)
    return torch.ones(shape, dtype=torch.long) if "mask" in name else torch.randn(shape)
