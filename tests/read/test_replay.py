"""The proof of a reading can fail: a wrong formula does not give the model's own stream."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from normula.read import read
from normula.read.reading import reading_of, written_of
from normula.read.replay import RefusedError, Written, needed, replay
from normula.read.streams import analysed
from normula.torch import capture, values
from tests.read import models as m
from tests.read.test_several import Dual


def first_layer(step: m.Step) -> tuple[object, Written, dict[int, object]]:
    model, x = m.stack(step), m.stream()
    program = capture(model, (x,))
    graph, chains = analysed(program)
    written = written_of(chains[0].layers[0])
    kept = values(program, model, (x,), {}, frozenset(needed(graph, written)))
    assert kept is not None
    return graph, written, kept


WRONG = {
    m.pre: (
        "x = norm(x + attn(x)); x = norm(x + mlp(x))",
        "x = attn(norm(x)); x = x + mlp(norm(x))",
        "x = x + 2 * attn(norm(x)); x = x + mlp(norm(x))",
        "x = x - attn(norm(x)); x = x + mlp(norm(x))",
        "n = norm(x); x = n + attn(n); x = x + mlp(norm(x))",
    ),
    m.post: (
        "x = x + attn(norm(x)); x = x + mlp(norm(x))",
        "x = x + norm(attn(x)); x = x + norm(mlp(x))",
        "x = norm(1.01 * x + attn(x)); x = norm(x + mlp(x))",
    ),
    m.sandwich: ("x = x + attn(norm(norm(x))); x = x + norm(mlp(norm(x)))",),
}


@pytest.mark.negative
@pytest.mark.parametrize(("step", "text"), [(step, text) for step, texts in WRONG.items() for text in texts])
def test_a_wrong_formula_is_refused(step: m.Step, text: str) -> None:
    graph, written, kept = first_layer(step)
    replay(graph, written, kept)  # type: ignore[arg-type]
    with pytest.raises(RefusedError):
        replay(graph, replace(written, text=text, made=_in_order(written, text)), kept)  # type: ignore[arg-type]


DUAL = "b = attn(x); n = norm(x + b); c = mlp(n); d = d + b + c; x = norm(n + c)"


@pytest.mark.negative
@pytest.mark.parametrize(
    "text",
    [
        DUAL.replace("d + b + c", "d + b"),
        DUAL.replace("d + b + c", "d + b - c"),
        DUAL.replace("x = norm(n + c)", "x = norm(n + b)"),
        DUAL.replace("attn(x)", "attn(d)"),
        DUAL.replace("mlp(n)", "mlp(d)"),
    ],
)
def test_a_wrong_formula_of_two_streams_is_refused(text: str) -> None:
    model, x = Dual(), m.stream()
    program = capture(model, (x,))
    graph, (chain,) = analysed(program)
    written = written_of(chain.layers[1])
    kept = values(program, model, (x,), {}, frozenset(needed(graph, written)))
    assert kept is not None
    replay(graph, replace(written, text=DUAL, made=_in_order(written, DUAL)), kept)  # type: ignore[arg-type]
    with pytest.raises(RefusedError):
        replay(graph, replace(written, text=text, made=_in_order(written, text)), kept)  # type: ignore[arg-type]


def _in_order(written: Written, text: str) -> tuple[object, ...]:
    """The layer's own norms and sublayers in the order in which another formula has them."""
    from normula.formula.parse import parse
    from normula.formula.tree import Call, walk
    from normula.read.expression import Applied, Normed

    norms = [part for part in written.made if isinstance(part, Normed)]
    others = [part for part in written.made if isinstance(part, Applied)]
    calls = [part for statement in parse(text).statements for part in walk(statement.value) if isinstance(part, Call)]
    return tuple(norms.pop(0) if call.word == "norm" else others.pop(0) for call in calls if call.index >= 0)


class Lengths(nn.Module):
    """Norms to length 1 of values that are about as small as epsilon is, which is under the root or a floor."""

    def __init__(self, under_root: bool) -> None:
        super().__init__()
        self.under_root = under_root
        self.attention, self.mlp = m.Attention(), m.Mlp()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.normed(x))
        return x + self.mlp(self.normed(x))

    def normed(self, x: Tensor) -> Tensor:
        if self.under_root:
            return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-9)
        return nn.functional.normalize(x, dim=-1, eps=1e-9)


@pytest.mark.parametrize("under_root", [True, False])
def test_the_epsilon_of_a_length_is_taken_where_it_stands(under_root: bool) -> None:
    model, x = nn.Sequential(Lengths(under_root), Lengths(under_root)).eval(), 1e-5 * m.stream()
    (stage,) = read(model, x).stages
    assert (stage.block, stage.proof) == ("x = x + attn(norm(x)); x = x + mlp(norm(x))", "replayed")


class Scaled(nn.Module):
    """Branches divided by a number after a bias was added to them, or taken off, on its own."""

    def __init__(self, sign: float) -> None:
        super().__init__()
        self.sign, self.norm1, self.norm2 = sign, nn.LayerNorm(m.WIDTH), nn.LayerNorm(m.WIDTH)
        self.attention, self.mlp = m.Attention(), m.Mlp()
        self.bias = nn.Parameter(torch.randn(m.WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + (self.attention(self.norm1(x)) + self.bias) / 3
        out = self.mlp(self.norm2(x))
        return x + (out - self.bias if self.sign < 0 else out + self.bias) / 3


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_bias_is_scaled_with_the_branch_that_it_is_added_to(sign: float) -> None:
    model, x = nn.Sequential(Scaled(sign), Scaled(sign)).eval(), m.stream()
    (stage,) = read(model, x).stages
    third = "x = x + 0.333333 * attn(norm(x)); x = x + 0.333333 * mlp(norm(x))"
    assert (stage.block, stage.proof) == (third, "replayed")


@pytest.mark.negative
def test_a_stage_that_fails_its_replay_is_unknown() -> None:
    model, x = m.stack(m.pre), m.stream()
    program = capture(model, (x,))

    def disturbed(keep: frozenset[int]) -> dict[int, object]:
        kept = values(program, model, (x,), {}, keep)
        assert kept is not None
        return {node: value * 1.01 if place % 3 else value for place, (node, value) in enumerate(kept.items())}

    reading = reading_of(program, disturbed)
    assert reading is not None
    assert {(stage.block, stage.proof) for stage in reading.stages} == {("unknown", "failed")}
    assert "but" in reading.stages[0].seen


@pytest.mark.negative
def test_values_of_another_pass_prove_nothing() -> None:
    model, x = m.stack(m.pre), m.stream()
    program = capture(model, (x,))
    assert reading_of(program, lambda keep: values(program, model, (x[:, :3],), {}, keep)) is None
