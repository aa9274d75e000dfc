"""A flag that changes nothing of what is computed is named; one that does anything is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from normula.framework import room
from normula.read.twin import read_source
from normula.torch.sources import SourceError, source
from tests.read import models as m

CODE = "flag-without-effect"


class Layer(m.Block):
    """Pre-LN or Post-LN as its flag says, or Post-LN whatever it says."""

    def __init__(self, norm_first: bool, heeded: bool) -> None:
        super().__init__(m.pre if norm_first and heeded else m.post)


def heeded(*, norm_first: bool = False) -> tuple[nn.Module, Tensor]:
    return m.Stack([Layer(norm_first, True), Layer(norm_first, True)]), m.stream()


def unheeded(*, norm_first: bool = False) -> tuple[nn.Module, Tensor]:
    return m.Stack([Layer(norm_first, False), Layer(norm_first, False)]), m.stream()


def refuses(*, norm_first: bool = False) -> tuple[nn.Module, Tensor]:
    if norm_first:
        raise ValueError("not yet")
    return unheeded()


def of_another_name(*, verbose: bool = False) -> tuple[nn.Module, Tensor]:
    return unheeded()


@dataclass(frozen=True)
class Config:
    pre_norm: bool = True
    scaled_residual: bool = False
    layers: int = 2


class Configured(m.Stack):
    """A model that heeds one flag of its config, as ResiDual's code heeded none."""

    def __init__(self, config: Config) -> None:
        super().__init__([Layer(config.pre_norm, True) for _ in range(config.layers)])
        self.config = config


def configured() -> tuple[nn.Module, Tensor]:
    return Configured(Config()), m.stream()


def idle(text: str) -> list[str]:
    findings = read_source(source(text)).findings
    return [one.evidence.partition(" is ")[0] for one in findings if one.code == CODE]


@pytest.mark.negative
@pytest.mark.parametrize(
    ("factory", "flags"),
    [
        ("unheeded", ["norm_first"]),
        ("heeded", []),
        ("refuses", []),
        ("of_another_name", []),
        ("configured", ["scaled_residual"]),
    ],
)
def test_flags_of_a_factory_and_of_a_config(factory: str, flags: list[str]) -> None:
    assert idle(f"tests.read.test_flags:{factory}") == flags


@pytest.mark.negative
@pytest.mark.parametrize(
    ("kind", "flags"),
    [
        ("mpt", ["attn_config.qk_ln"]),  # the attention of MptModel has no norm of its queries and keys
        ("bloom", []),
        ("wav2vec2", []),
        ("gpt_neox", []),
        ("opt", []),
        ("gpt2", []),
    ],
)
def test_flags_of_transformers(kind: str, flags: list[str]) -> None:
    pytest.importorskip("transformers")
    assert idle(f"hf:{kind}") == flags


def test_a_finding_says_both_values_and_what_to_do() -> None:
    findings = read_source(source("tests.read.test_flags:unheeded")).findings
    (found,) = (one for one in findings if one.code == CODE)
    assert found.evidence == "norm_first is False, and with True the same is computed"
    assert "remove the flag" in found.remedy


def test_the_model_and_the_random_state_stay_as_they_were() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    found = source("tests.read.test_flags:configured")
    weights = {name: one.clone() for name, one in found.model.state_dict().items()}
    read_source(found)
    assert found.model.config == Config()
    assert torch.equal(torch.get_rng_state(), before)
    torch.testing.assert_close(found.model.state_dict(), weights, rtol=0, atol=0)


def test_a_flag_of_a_number_or_of_training_is_not_tried() -> None:
    from normula.torch.sources.flags import flagged

    names = ("norm_topk_prob", "norm_pix_loss", "residual_in_fp32", "freeze_norm", "use_cache", "pre_layernorm")
    values = dict.fromkeys(names, True)

    def flip(name: str) -> Any:
        raise SourceError(name)

    found = flagged(room("torch").sources.Source(model=nn.Identity(), title=""), values, flip)
    assert found is not None
    assert [flag.name for flag in found.flags] == ["pre_layernorm"]
