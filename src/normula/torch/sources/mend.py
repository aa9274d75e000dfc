"""Configs that their own models refuse, set right by what the models say."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

from normula.torch.sources.errors import needed
from normula.torch.sources.fields import kind, main_width, parts
from normula.torch.sources.shrink import EXPERTS, VOCABULARY, Scale

WINDOW = 8
"""Tokens that local attention sees, where the config leaves it open."""
LENGTH = 4
"""Of what is to be forecast, where the config leaves it open."""


def mended(config: Any, said: str, scale: Scale) -> tuple[Any, str]:
    """A config with what it lacks by its model's own word, and what was done; None where nothing helps.

    Lengths, sizes and numbers that a default config leaves open are filled in; a small ResNet stands for a backbone
    that timm would make, where timm is missing. Nothing is changed that says where a layer normalises.
    """
    config = copy.deepcopy(config)
    length = re.search(r"`(\w+_length)` config needs to be", said)
    if length and getattr(config, length[1], 0) is None:
        written = {**config.to_diff_dict(), length[1]: LENGTH}
        return type(config).from_dict(written), f"{length[1]}, which the config leaves open, is {LENGTH}"
    if "timm" in said and _without_timm(config):
        return config, "a small ResNet stands for its backbone, which timm would make"
    if match := re.search(r"sum exactly to (\d+).*?split_sizes=\[([\d, ]+)\]", said):
        sections = [int(n) for n in match[2].split(",")]
        new = [n * int(match[1]) * scale.head_width // sum(sections) for n in sections]
        for fields in parts(config):
            rope = fields.get("rope_parameters")
            if isinstance(rope, dict) and "rope_type" in rope and rope.get("mrope_section") != new:
                rope["mrope_section"] = new
                return config, "its rotary sections are fitted to its heads"
    if (match := re.search(r"KeyError: '(\w+_attention)'", said)) and _with_rope(config, match[1]):
        return config, "rotary parameters, which the config leaves open, are the usual ones"
    if match := re.search(r"Could not find a `(\w*window\w*)` argument in the config", said):
        for fields in parts(config):
            if match[1] in fields and fields[match[1]] is None:
                fields[match[1]] = WINDOW
                return config, f"{match[1]}, which the config leaves open, is {WINDOW}"
    opened = _filled(config) if re.search(r"NoneType|empty\(\)|'bool' object", said) else []
    return (config, f"{', '.join(opened)}: left open by the config, filled in") if opened else (None, "")


def _without_timm(config: Any) -> bool:
    for fields in parts(config):
        for name, value in list(fields.items()):
            if getattr(value, "model_type", "") == "timm_backbone":
                stages = list(getattr(value, "out_indices", None) or [4])
                fields[name] = needed("transformers").ResNetConfig(
                    embedding_size=8,
                    hidden_sizes=[16, 32, 64, 128],
                    depths=[1, 1, 1, 1],
                    layer_type="basic",
                    out_indices=[min(max(stage, 1), 4) for stage in stages],
                )
                return True
    return False


def _with_rope(config: Any, kind: str) -> bool:
    done = False
    for fields in parts(config):
        rope = fields.get("rope_parameters")
        if isinstance(rope, dict) and fields.get("layer_types") and kind not in rope and "rope_type" not in rope:
            for each in {kind, *fields["layer_types"]}:
                rope.setdefault(each, {"rope_type": "default", "rope_theta": 10000.0})
            done = True
    return done


def _filled(config: Any) -> list[str]:
    """Numbers that stand as None and that a model cannot do without; returns their names."""
    done = list[str]()
    for fields in parts(config):
        width, heads = main_width(fields), fields.get("num_attention_heads")
        for name, value in list(fields.items()):
            if value is None and (new := _usual(name, fields, width, heads)) is not None:
                fields[name] = new
                done.append(name)
    return done


def _usual(name: str, fields: Mapping[str, Any], width: int, heads: Any) -> Any:
    """What most configs have in a field."""
    layers = fields.get("num_hidden_layers")
    match name:
        case "head_dim" if width and isinstance(heads, int):
            return width // heads
        case "num_key_value_heads":
            return heads
        case "vocab_size":
            return VOCABULARY
        case "layer_types" if isinstance(layers, int):
            return ["full_attention"] * layers
        case "image_token_id" | "image_token_index":
            return VOCABULARY // 2
        case "n_shared_experts":
            return 1
    if kind(name) == "width" and name.split("_")[0] in ("moe", "expert", "experts"):
        return width or None
    return {"experts": EXPERTS, "choices": 2}.get(kind(name))
