"""Shapes that are remembered are those that are worked out."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn

from normula.torch.capture import capture
from normula.torch.remembered import Remembered
from tests.guard import models as m

MODELS: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "stack": (lambda: m.stack(False), torch.ones(2, 5, 16)),
    "bloom": (lambda: m.bloom(True), m.IDS),
    "falcon": (lambda: m.falcon(True), m.IDS),
    "bert": (lambda: m.encoder(hf.BertModel), m.IDS),
    "home": (m.Home, m.IDS),
}


@pytest.mark.parametrize("case", MODELS)
def test_a_program_is_the_same_with_and_without(case: str) -> None:
    make, x = MODELS[case]
    model = make().to("meta")
    plain = capture(model, (x,))
    with Remembered():
        assert capture(model, (x,)) == plain


def laid_out(function: Callable[[], Any]) -> list[Any]:
    outs = function()
    return [(one.shape, one.stride(), one.dtype) for one in (outs if isinstance(outs, tuple) else (outs,))]


def test_another_layout_dtype_or_number_is_another_question() -> None:
    x, w = torch.empty(4, 6, device="meta"), torch.empty(6, device="meta")
    asks: list[Callable[[], Any]] = [
        lambda: x + 1,
        lambda: x.t() + 1,
        lambda: x + True,
        lambda: x.to(torch.int64) + 1,
        lambda: x.to(torch.int64) + 1.0,
        lambda: x.sum(0),
        lambda: x.sum(1),
        lambda: x.sum(1, keepdim=True),
        lambda: torch.native_layer_norm(x, (6,), w, w, 1e-5),
        lambda: torch.native_layer_norm(x.half(), (6,), w.half(), w.half(), 1e-5),
        lambda: torch.cat([x, x]),
        lambda: torch.cat([x, x], 1),
    ]
    expected = [laid_out(one) for one in asks]
    with Remembered():
        for _ in range(2):
            assert [laid_out(one) for one in asks] == expected


def test_results_share_no_memory_and_views_do() -> None:
    x = torch.empty(4, 6, device="meta")

    def storage(tensor: Tensor) -> int:
        return int(tensor.untyped_storage()._cdata)

    with Remembered():
        one, other = x + 1, x + 1
        assert len({storage(part) for part in (x, one, other)}) == 3
        assert storage(x.view(24)) == storage(x.view(24)) == storage(x)
        assert x.add_(1) is x
