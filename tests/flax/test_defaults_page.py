"""The page of framework defaults that would have differed, read from the installed versions."""

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
import torch
from flax import linen as nn
from flax import nnx

from normula.spec import Spec
from tests.test_catalogue_page import DOCS, current


class Row(NamedTuple):
    what: str
    torch: str
    flax: str
    field: str


def default(of: Callable[..., Any], name: str) -> Any:
    """The default of an argument."""
    return inspect.signature(of).parameters[name].default


def deviation(matrix: Any, inputs: int, largest: bool = True) -> str:
    """Standard deviation of a matrix of 512 x 512 draws in units of 1/sqrt(inputs), to 1 in 100, and its largest."""
    array = np.asarray(matrix, np.float64) * math.sqrt(inputs)
    text = f"deviation {np.std(array):.2f}/sqrt(in)"
    return text + (f", at most {np.abs(array).max():.1f}/sqrt(in)" if largest else "")


def spec(name: str) -> str:
    return f"`{name}`: {getattr(Spec(layers=1), name)}"


def rows() -> list[Row]:
    key, at_3 = jax.random.key(0), np.float32(-3.0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        linear, table = torch.nn.Linear(512, 512), torch.nn.Embedding(512, 512)
        attention = torch.nn.MultiheadAttention(512, 8)
    dense = nn.Dense(512).init(key, np.zeros((1, 512), np.float32))["params"]
    embed = nn.Embed(512, 512).init(key, np.zeros((1,), np.int32))["params"]["embedding"]
    gelu = {True: "tanh form", False: "exact"}
    torch_gelu = default(torch.nn.functional.gelu, "approximate") if _has_signature() else torch.nn.GELU().approximate
    return [
        Row(
            "epsilon of LayerNorm",
            f"{torch.nn.LayerNorm(4).eps:g}",
            f"{nn.LayerNorm().epsilon:g} (Linen), {nnx.LayerNorm(4, rngs=nnx.Rngs(0)).epsilon:g} (NNX)",
            spec("eps"),
        ),
        Row(
            "epsilon of RMSNorm",
            "that of the type, 1.2e-07 in float32" if torch.nn.RMSNorm(4).eps is None else str(torch.nn.RMSNorm(4).eps),
            f"{nn.RMSNorm().epsilon:g}",
            spec("eps"),
        ),
        Row(
            "variance of LayerNorm",
            _lost(lambda x: torch.nn.functional.layer_norm(torch.tensor(x), (64,)).numpy()),
            _lost(lambda x: nn.LayerNorm().apply(nn.LayerNorm().init(key, x), x)),
            spec("variance"),
        ),
        Row(
            "GELU",
            gelu[torch_gelu != "none"],
            gelu[not np.isclose(nn.gelu(at_3), jax.nn.gelu(at_3, approximate=False), rtol=1e-3)],
            f"{spec('activation')} (exact); `gelu_tanh` is the other",
        ),
        Row(
            "activation of a transformer layer",
            str(default(torch.nn.TransformerEncoderLayer, "activation").__name__),
            "none has one",
            spec("activation"),
        ),
        Row(
            "placement of a transformer layer",
            "norm(x + f(x))" if not default(torch.nn.TransformerEncoderLayer, "norm_first") else "x + f(norm(x))",
            "none has one",
            "`placement`, always said",
        ),
        Row(
            "matrix of Linear, Dense",
            f"uniform: {deviation(linear.weight.detach(), 512)}",
            f"normal, cut off: {deviation(dense['kernel'], 512)}",
            f"{spec('init')}; `torch` is PyTorch's",
        ),
        Row(
            "bias of Linear, Dense",
            "0" if not linear.bias.any() else f"uniform: {deviation(linear.bias.detach(), 512)}",
            "0" if not np.any(dense["bias"]) else "not 0",
            "0, but with `init`: torch",
        ),
        Row(
            "matrix of queries, keys, values",
            f"uniform: {deviation(attention.in_proj_weight.detach(), 512)}, as one matrix of three",
            "as Dense" if nn.MultiHeadDotProductAttention(8).kernel_init is nn.Dense(8).kernel_init else "its own",
            "as every matrix, each on its own",
        ),
        Row(
            "embedding",
            f"deviation {table.weight.std().item():.2f}",
            f"deviation {float(np.std(embed)) * math.sqrt(512):.2f}/sqrt(D)",
            "deviation 1 for tokens, 0.02 for positions, under every `init`",
        ),
        Row(
            "bias in attention",
            str(default(torch.nn.MultiheadAttention, "bias")),
            str(nn.MultiHeadDotProductAttention(8).use_bias),
            spec("bias"),
        ),
        Row(
            "dropout of a transformer layer",
            str(default(torch.nn.TransformerEncoderLayer, "dropout")),
            str(nn.MultiHeadDotProductAttention(8).dropout_rate),
            spec("dropout"),
        ),
        Row(
            "dropout of attention's weights",
            "a mask for each head and sequence",
            "one mask for all" if nn.MultiHeadDotProductAttention(8).broadcast_dropout else "a mask for each",
            "a mask for each head and sequence",
        ),
        Row(
            "whether dropout drops where nothing is said",
            "yes: a module starts in training" if torch.nn.Dropout().training else "no",
            "an error in Linen"
            + (", yes in NNX" if not nnx.Dropout(0.5, rngs=nnx.Rngs(0)).deterministic else ", no in NNX"),
            "an error in Flax; PyTorch's own in PyTorch",
        ),
        Row(
            "axes of an attention's input",
            "(B, T, D)" if default(torch.nn.MultiheadAttention, "batch_first") else "(T, B, D)",
            "(B, T, D)",
            "(B, T, D)",
        ),
        Row(
            "a matrix in memory",
            "(out, in)" if torch.nn.Linear(2, 3).weight.shape == (3, 2) else "(in, out)",
            "(in, out)" if nn.Dense(3).init(key, np.zeros((1, 2)))["params"]["kernel"].shape == (2, 3) else "(out, in)",
            "each framework's own; `to_tree` and `to_arrays` turn them",
        ),
        Row(
            "float32 products on a GPU",
            f"{torch.get_float32_matmul_precision()} (all of float32)",
            f"{jax.config.jax_default_matmul_precision or 'default'} (TensorFloat-32 where the device has it)",
            "not set: a choice of the process, the same for every placement",
        ),
    ]


def _has_signature() -> bool:
    try:
        inspect.signature(torch.nn.functional.gelu)
    except ValueError:
        return False
    return True


def _lost(norm: Callable[[Any], Any]) -> str:
    """Which form a LayerNorm has, by what it makes of a row with mean 1e4 and spread 1."""
    x = (1e4 + np.random.default_rng(0).standard_normal((1, 64))).astype(np.float32)
    exact = (x.astype(np.float64) - x.mean(dtype=np.float64)) / x.std(dtype=np.float64)
    keeps = np.abs(np.asarray(norm(x)) - exact).max() < 0.01
    return "the mean first, then the squares" if keeps else "mean(x^2) - mean(x)^2 in one pass"


def defaults_page() -> str:
    lines = [
        "# Defaults that differ",
        "",
        "The same words mean other numbers in PyTorch and in Flax. None of this reaches a comparison: what a network",
        "computes and starts from is a field of `Spec`, and the same in every framework. This page is made by a test",
        "that reads the defaults from the versions installed.",
        "",
        "| what | PyTorch | Flax | normula |",
        "|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in rows()),
    ]
    return "\n".join(lines) + "\n"


@pytest.mark.golden
def test_the_page_of_defaults_is_current(request: pytest.FixtureRequest) -> None:
    current(DOCS / "defaults.md", defaults_page(), request)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.what)
def test_every_row_says_what_normula_does(row: Row) -> None:
    assert all(row)


def test_the_two_frameworks_differ_where_the_page_would_be_needless() -> None:
    assert sum(row.torch != row.flax for row in rows()) > len(rows()) // 2
