"""Findings: each code has a model that triggers it, and one that must not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import normula as nm
from normula.read import read
from normula.read.findings import CODES
from tests.read import models as m

TOKENS = m.TOKENS


class Flat(nn.Module):
    """LayerNorm over tokens and features."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm([TOKENS, m.WIDTH])

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


class OverTokens(nn.Module):
    """LayerNorm over the sequence, by a transposition."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(TOKENS)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.transpose(1, 2)).transpose(1, 2)


class PerChannel(nn.Module):
    """A norm of channels first."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.transpose(1, 2)).transpose(1, 2)


class Half(m.HandNorm):
    """Statistics in half precision."""

    def forward(self, x: Tensor) -> Tensor:
        y = x.to(torch.bfloat16)
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return y.to(x.dtype) * self.weight


class Named(nn.Module):
    """A norm before the MLP that is named for after attention."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.add_module(name, nn.LayerNorm(m.WIDTH))
        self.name, self.mlp = name, m.Mlp()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mlp(self.get_submodule(self.name)(x))


class Trimmed(m.Block):
    """A block that holds only the norms that it calls."""

    def __init__(
        self, forward: m.Step, *kept: str, norm: Callable[[], nn.Module] = lambda: nn.LayerNorm(m.WIDTH)
    ) -> None:
        super().__init__(forward, norm)
        for name in {"norm1", "norm2", "norm3", "norm4"} - {*kept}:
            delattr(self, name)


def trimmed(step: m.Step, *kept: str, after: bool = False, layers: int = 2, **options: object) -> nn.Module:
    blocks: list[nn.Module] = [Trimmed(step, *kept, **options) for _ in range(layers)]  # type: ignore[arg-type]
    return m.Stack(blocks, None, nn.LayerNorm(m.WIDTH) if after else None)


def causal(norm: Callable[[], nn.Module]) -> nn.Module:
    model = trimmed(m.pre, "norm1", "norm2", after=True, norm=norm)
    for block in model.layers:
        block.attn = m.Attention(causal=True)
    return model


def encoder(**options: object) -> nn.Module:
    layer = nn.TransformerEncoderLayer(m.WIDTH, 2, 32, batch_first=True, **options)  # type: ignore[arg-type]
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


PLAIN: Callable[[], nn.Module] = lambda: trimmed(m.pre, "norm1", "norm2", after=True)  # noqa: E731
POST: Callable[[], nn.Module] = lambda: trimmed(m.post, "norm1", "norm2")  # noqa: E731

CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], nn.Module]]] = {
    "final-norm-missing": (lambda: trimmed(m.pre, "norm1", "norm2"), PLAIN),
    "final-norm-doubled": (lambda: trimmed(m.post, "norm1", "norm2", after=True), POST),
    "skip-from-normed": (lambda: trimmed(m.normed_skip, "norm1", "norm2"), POST),
    "sublayer-unlike": (lambda: trimmed(m.attn_only_normed, "norm1", after=True), PLAIN),
    "norm-unused": (lambda: trimmed(m.pre, "norm1", "norm2", "norm3", after=True), PLAIN),
    "norm-reused": (lambda: trimmed(m.shared_norm, "norm1", after=True), PLAIN),
    "query-only-normed": (lambda: trimmed(m.query_only, "norm1", "norm2", after=True), PLAIN),
    "norm-over-tokens": (lambda: trimmed(m.pre, "norm1", "norm2", after=True, norm=Flat), PLAIN),
    "future-leaks": (lambda: causal(OverTokens), lambda: causal(lambda: nn.LayerNorm(m.WIDTH))),
    "eps-unusual": (
        lambda: trimmed(m.pre, "norm1", "norm2", after=True, norm=lambda: nn.LayerNorm(m.WIDTH, 1e-2)),
        lambda: trimmed(m.pre, "norm1", "norm2", after=True, norm=lambda: nn.LayerNorm(m.WIDTH, 1e-6)),
    ),
    "half-precision-statistics": (
        lambda: trimmed(m.pre, "norm1", "norm2", after=True, norm=Half),
        lambda: trimmed(m.pre, "norm1", "norm2", after=True, norm=m.HandNorm),
    ),
    "name-misleads": (
        lambda: m.Stack([Named("post_attention_layernorm"), Named("post_attention_layernorm")]),
        lambda: m.Stack([Named("pre_mlp_layernorm"), Named("pre_mlp_layernorm")]),
    ),
    "layer-reused": (lambda: m.Stack([layer := m.Block(m.pre), layer]), PLAIN),
    "fused-path": (lambda: encoder().eval(), lambda: encoder().train()),
}


def codes(model: nn.Module, x: Tensor) -> set[str]:
    return {finding.code for finding in read(model, x).findings}


@pytest.mark.negative
@pytest.mark.parametrize("code", CASES)
def test_a_finding_and_its_twin(code: str) -> None:
    faulty, sound = CASES[code]
    assert code in codes(faulty(), m.stream())
    assert code not in codes(sound(), m.stream())


@pytest.mark.negative
@pytest.mark.parametrize(("width", "tiny"), [(1, True), (2, True), (4, False)])
def test_a_norm_of_one_or_two_features(width: int, tiny: bool) -> None:
    layer = nn.TransformerEncoderLayer(width, 1, 4, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    assert ("width-tiny" in codes(model, torch.randn(2, 3, width))) == tiny


@pytest.mark.negative
@pytest.mark.parametrize("norm", [Flat, OverTokens, lambda: PerChannel(nn.InstanceNorm1d(m.WIDTH, affine=True))])
def test_statistics_of_several_tokens(norm: Callable[[], nn.Module]) -> None:
    assert "norm-over-tokens" in codes(trimmed(m.pre, "norm1", "norm2", after=True, norm=norm), m.stream())


def test_a_batch_norm_with_kept_statistics_is_not_blamed() -> None:
    model = trimmed(m.pre, "norm1", "norm2", norm=lambda: PerChannel(nn.BatchNorm1d(m.WIDTH)))
    reading = read(model, m.stream())
    assert (reading.norm, reading.inner) == ("none", ("BatchNorm",))
    assert reading.findings == ()


def test_every_code_has_a_case() -> None:
    elsewhere = {"width-tiny", "flag-without-effect", "weights-not-finite"}  # test_flags, test_kinds
    assert {*CASES, *elsewhere} == set(CODES)


def test_a_sound_model_has_no_finding() -> None:
    assert codes(PLAIN(), m.stream()) == set()


def test_torch_transformer_of_either_order() -> None:
    """Closed pre-LN needs no remark; closed post-LN has two norms in a row on both sides."""
    pre = nn.Transformer(16, 2, 2, 2, 32, batch_first=True, norm_first=True).train()
    post = nn.Transformer(16, 2, 2, 2, 32, batch_first=True).train()
    assert read(pre, m.stream(), m.stream()).findings == ()
    found = read(post, m.stream(), m.stream()).findings
    assert [finding.code for finding in found] == ["final-norm-doubled", "final-norm-doubled"]


def test_cross_attention_is_not_blamed_for_its_memory() -> None:
    layer = nn.TransformerDecoderLayer(16, 2, 32, batch_first=True, norm_first=True)
    model = nn.TransformerDecoder(layer, 2, nn.LayerNorm(16))
    found = read(model, m.stream(), m.stream())
    assert found.stages[0].block == "x = x + attn(norm(x)); x = x + cross(norm(x)); x = x + mlp(norm(x))"
    assert found.findings == ()


@pytest.mark.negative
def test_tokens_pooled_by_a_product_are_no_norm_over_tokens() -> None:
    model = nm.build(nm.Spec(placement="pre", layers=3, width=16, heads=2, classes=3, vocab=9))
    mask = torch.ones(2, 5, dtype=torch.bool)
    mask[0, 3:] = False
    assert [one.code for one in read(model, torch.randint(0, 9, (2, 5)), mask).findings] == []
