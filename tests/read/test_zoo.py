"""A part of the table of models, of every kind that is in it; the whole is read by tests.read.zoo_report."""

import pytest

from normula.read import read
from tests.read.compare import compare
from tests.read.fixtures import built, line

pytest.importorskip("transformers")

RIGHT = (
    "bert", "bert/cross", "bart", "mbart", "pegasus_x", "t5", "switch_transformers", "canine", "cpmant", "fnet",
    "informer", "autoformer", "lxmert", "mobilebert", "mobilebert/layer_norm", "modernbert", "xlm", "xlnet",
    "xmod/post-skip", "xmod/pre", "yoso", "bamba", "bitnet", "bloom", "bloom/post-layernorm-residual", "cohere2",
    "deepseek_v3", "doge", "gemma2", "gpt2", "gpt_neox", "llama4_text", "longcat_flash", "mamba2", "minimax/alpha",
    "mpt", "nanochat", "nemotron_h", "olmo2", "opt/post-projected", "qwen3_next", "rwkv/rescale",
    "stablelm/parallel", "zamba", "cvt", "detr/auxiliary-loss", "focalnet/post-layerscale", "hubert/stable",
    "levit", "mobilevitv2", "poolformer", "segformer", "siglip_vision_model", "swin", "swin2sr", "swiftformer",
    "timesformer", "vit_mae/pretraining", "vits", "wav2vec2-bert/adapter", "wav2vec2-conformer",
)  # fmt: skip

UNKNOWN = ("mra", "sam/full")
"""What is not understood is said to be so."""


@pytest.mark.parametrize("identity", RIGHT)
def test_a_line_of_the_table_is_read_right(identity: str) -> None:
    entry = line(identity)
    model, args, kwargs = built(entry)
    reading = read(model, *args, **kwargs)
    came = compare(entry, reading.to_dict())
    assert came.verdict == "right", came.notes
    assert {stage.proof for stage in reading.stages} == {"replayed"}


@pytest.mark.parametrize("identity", UNKNOWN)
def test_what_is_not_understood_is_not_said(identity: str) -> None:
    entry = line(identity)
    model, args, kwargs = built(entry)
    came = compare(entry, read(model, *args, **kwargs).to_dict())
    assert came.verdict == "unknown", came.notes
