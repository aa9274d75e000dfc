"""The initial weights: their moments, what they depend on, and torch's own default."""

import math

import numpy as np
import pytest
import torch

from normula.oracle import weights
from normula.oracle.initial import RULES, draw
from normula.oracle.norms import Array
from normula.spec.kinds import INIT_RULES
from normula.spec.role import Role
from tests.cases import small

pytestmark = pytest.mark.oracle

OUT, IN, S = 300, 200, 24
MATRIX, WRITER, BIAS = Role(kind="matrix"), Role(kind="writer"), Role(kind="bias", inputs=IN)


def start(
    name: str = "a", role: Role = MATRIX, shape: tuple[int, ...] = (OUT, IN), rule: str = "xavier", **other
) -> Array:  # type: ignore[no-untyped-def]
    return draw(name, role, shape, **({"rule": rule, "seed": 0, "sublayers_total": S} | other))


def assert_moments(draws: Array, deviation: float, kurtosis: float) -> None:
    """Mean, standard deviation and E[z^4]/E[z^2]^2 within five of their own standard errors."""
    z, n = draws.ravel() / deviation, draws.size
    assert abs(z.mean()) < 5 / math.sqrt(n)
    assert abs((z**2).mean() - 1) < 5 * math.sqrt((kurtosis - 1) / n)
    assert abs((z**4).mean() - kurtosis) < 5 * math.sqrt(96 / n)  # 96 = Var(z^4) for a normal, more than for a uniform


NORMAL, UNIFORM = 3.0, 9 / 5


@pytest.mark.parametrize(
    ("rule", "role", "deviation", "kurtosis"),
    [
        ("xavier", MATRIX, math.sqrt(2 / (OUT + IN)), NORMAL),
        ("xavier", WRITER, math.sqrt(2 / (OUT + IN)), NORMAL),
        ("normal", MATRIX, 0.02, NORMAL),
        ("normal", WRITER, 0.02, NORMAL),
        ("scaled", MATRIX, 0.02, NORMAL),
        ("scaled", WRITER, 0.02 / math.sqrt(S), NORMAL),
        ("torch", MATRIX, 1 / math.sqrt(3 * IN), UNIFORM),
        ("torch", WRITER, 1 / math.sqrt(3 * IN), UNIFORM),
    ],
)
def test_a_matrix_has_the_moments_of_its_rule(rule: str, role: Role, deviation: float, kurtosis: float) -> None:
    assert_moments(start(role=role, rule=rule), deviation, kurtosis)


@pytest.mark.parametrize("rule", RULES)
def test_what_is_outside_the_sublayers_is_the_same_under_every_rule(rule: str) -> None:
    for kind, deviation in (
        ("token_embedding", 1),
        ("feature_embedding", 1 / math.sqrt(IN)),
        ("position_embedding", 0.02),
        ("head", 1 / math.sqrt(IN)),
    ):
        role = Role(kind=kind)
        assert_moments(start(role=role, rule=rule), deviation, NORMAL)
        np.testing.assert_array_equal(start(role=role, rule=rule), start(role=role))
    constant = start(role=Role(kind="constant", start=0.5), shape=(), rule=rule)
    assert constant.shape == ()
    assert constant == 0.5


@pytest.mark.parametrize("rule", RULES)
def test_values_of_unit_size_start_the_stream_at_unit_size(rule: str) -> None:
    found = weights(small("pre", width=400, features=300, init=rule))
    values = np.random.default_rng(0).standard_normal((20, 300))
    stream = values @ found["embed.features.weight"].T + found["embed.features.bias"]
    assert abs(np.sqrt(np.mean(stream**2)) - 1) < 0.05
    assert not found["embed.features.bias"].any()


@pytest.mark.parametrize("rule", RULES)
def test_biases_are_zero_except_torchs(rule: str) -> None:
    bias = start(role=BIAS, shape=(OUT,), rule=rule)
    if rule == "torch":
        assert 0.9 / math.sqrt(IN) < np.abs(bias).max() <= 1 / math.sqrt(IN)
        assert_moments(bias, 1 / math.sqrt(3 * IN), UNIFORM)
    else:
        np.testing.assert_array_equal(bias, np.zeros(OUT))


def test_torch_draws_from_the_same_distribution() -> None:
    """Ours and `torch.nn.Linear`'s have the same bound and the same moments."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = torch.nn.Linear(IN, OUT, dtype=torch.float64)
    bound = 1 / math.sqrt(IN)
    for values in (theirs.weight, theirs.bias):
        array = values.detach().numpy()
        assert 0.9 * bound < np.abs(array).max() <= bound * (1 + 1e-12)  # torch multiplies two roots, each rounded
        assert_moments(array, bound / math.sqrt(3), UNIFORM)
    assert 0.999 * bound < np.abs(start(rule="torch")).max() <= bound


def test_rules_scale_the_same_draws() -> None:
    standard = start(rule="normal") / 0.02
    for rule, role, scale in (
        ("xavier", MATRIX, math.sqrt(2 / (OUT + IN))),
        ("scaled", WRITER, 0.02 / math.sqrt(S)),
        ("scaled", MATRIX, 0.02),
        ("xavier", Role(kind="token_embedding"), 1.0),
    ):
        # Each side is the draw times one or two rounded factors.
        np.testing.assert_allclose(start(role=role, rule=rule) / scale, standard, rtol=1e-15)


@pytest.mark.parametrize("rule", RULES)
def test_the_factor_multiplies_a_matrix(rule: str) -> None:
    np.testing.assert_allclose(start(rule=rule, factor=0.3), 0.3 * start(rule=rule), rtol=1e-15)


@pytest.mark.parametrize("rule", RULES)
def test_the_order_of_drawing_does_not_matter(rule: str) -> None:
    names = [f"layer{i}.{name}.weight" for i in range(3) for name in "qkvo"]
    forwards = {name: start(name, rule=rule) for name in names}
    backwards = {name: start(name, rule=rule) for name in reversed(names)}
    for name in names:
        np.testing.assert_array_equal(forwards[name], backwards[name])


def test_the_global_generator_is_neither_read_nor_moved() -> None:
    before = np.random.get_state()
    first = start()
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])
    np.random.random()
    np.testing.assert_array_equal(start(), first)
    np.random.set_state(before)


def test_other_names_and_seeds_give_independent_draws() -> None:
    draws = [start(name, seed=seed).ravel() for name in ("a", "b", "a.weight") for seed in (0, 1)]
    correlations = np.corrcoef(draws) - np.eye(len(draws))
    assert np.abs(correlations).max() < 5 / math.sqrt(OUT * IN)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: start(rule="paper"), "look up"),
        (lambda: start(rule="xavir"), "Did you mean 'xavier'"),
        (lambda: start(role=BIAS, shape=(OUT,), factor=0.5), "factor"),
        (lambda: start(role=Role(kind="head"), factor=0.5), "factor"),
        (lambda: start(seed=-1), "seed"),
        (lambda: Role(kind="bias"), "inputs"),
        (lambda: Role(kind="matrix", inputs=3), "inputs"),
        (lambda: Role(kind="constant"), "start"),
    ],
)
def test_what_would_have_no_effect_is_refused(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        call()


def test_every_rule_but_paper_draws() -> None:
    assert set(RULES) | {"paper"} == set(INIT_RULES)


def test_xavier_with_fused_matrices_starts_where_torchs_transformer_does() -> None:
    """Each of its matrices has the deviation of ours: a uniform draw there, a normal one here."""
    D, F = 96, 224
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = torch.nn.Transformer(
            D, 4, num_encoder_layers=1, num_decoder_layers=1, dim_feedforward=F, batch_first=True
        )
    layer = theirs.encoder.layers[0]
    q, k, v = layer.self_attn.in_proj_weight.chunk(3)
    wanted = {
        "attn.f.q": q,
        "attn.f.k": k,
        "attn.f.v": v,
        "attn.f.o": layer.self_attn.out_proj.weight,
        "mlp.f.up": layer.linear1.weight,
        "mlp.f.down": layer.linear2.weight,
    }
    spec = small("post", width=D, heads=4, hidden=F, layers=1, init="xavier_qkv")
    ours = weights(spec)
    for name, other in wanted.items():
        assert ours[f"layers.0.{name}.weight"].std() == pytest.approx(other.std().item(), rel=0.03), name
    for name in ("q", "k", "v"):
        assert ours[f"layers.0.attn.f.{name}.weight"].std() == pytest.approx(math.sqrt(2 / (D + 3 * D)), rel=0.03)


def test_fused_matrices_have_the_rows_that_there_are() -> None:
    """With fewer heads of keys than of queries, the three have D + 2 D / 4 rows."""
    D = 128
    spec = small("pre", width=D, heads=8, kv_heads=2, hidden=16, layers=1, init="xavier_qkv")
    for name in ("q", "k", "v"):
        found = weights(spec)[f"layers.0.attn.f.{name}.weight"].std()
        assert found == pytest.approx(math.sqrt(2 / (D + D + 2 * D / 4)), rel=0.05)
