"""Rounding, half precision, extreme inputs, dropout, and where the first weights come from."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from normula import oracle
from normula.catalog import placements
from normula.formula import Placement
from normula.oracle.norms import normalise
from normula.spec import Spec
from normula.torch import Model, build
from normula.torch.norms import norm
from tests.cases import as_small, random_inputs, random_weights, small, takes, title
from tests.near import FLOAT64, assert_near
from tests.torch.models import arguments_of, gradients, inputs_of, model_of

HALVES = {torch.float16: 2e-3, torch.bfloat16: 1e-2}
"""Two roundings of 2^-11 and 2^-8, at the input and at the output, of values of size 1, and some room."""

WITH_STATISTICS = ("layernorm", "rmsnorm", "l2norm")
KINDS = (*WITH_STATISTICS, "dyt", "derf")
LANGUAGE = dict(vocab=7, causal=True)


def randomised(kind: str, width: int) -> nn.Module:
    """A norm whose parameters are not at their start."""
    module, random = norm(kind, width, 1e-5), np.random.default_rng(0)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            low, high = (0.5, 1.5) if name in ("weight", "alpha") else (-0.3, 0.3)
            parameter.copy_(torch.tensor(random.uniform(low, high, parameter.shape)))
    return module


def truth(module: nn.Module, kind: str, x: Tensor) -> np.ndarray:
    arrays = {name: parameter.detach().double().numpy() for name, parameter in module.named_parameters()}
    return normalise(kind, x.double().numpy(), arrays, eps=1e-5)[0]


def signs(shape: tuple[int, ...]) -> Tensor:
    return torch.tensor(np.random.default_rng(1).choice([-1.0, 1.0], shape), dtype=torch.float32)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("size", [1e-4, 1.0, 300.0, 20000.0])
@pytest.mark.parametrize("kind", KINDS)
def test_a_norm_in_half_precision(kind: str, size: float, dtype: torch.dtype) -> None:
    """The square of 300 overflows float16, and a sum of squares of 20000 does so earlier."""
    module, x = randomised(kind, 64), (size * signs((16, 64))).to(dtype)
    y = module(x)
    assert y.dtype == dtype
    assert_near(y.detach().float().numpy(), truth(module, kind, x), HALVES[dtype])

    y = module.to(dtype)(x)  # parameters in half precision too
    assert y.dtype == dtype
    assert_near(y.detach().float().numpy(), truth(module, kind, x), HALVES[dtype])


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("kind", WITH_STATISTICS)
def test_the_gradient_through_a_norm_in_half_precision(kind: str, dtype: torch.dtype) -> None:
    module = randomised(kind, 64)
    x, direction = torch.randn(16, 64, generator=torch.Generator().manual_seed(0)), signs((16, 64))
    found = []
    for type_ in (dtype, torch.float32):
        one = x.to(dtype).to(type_).requires_grad_()
        torch.autograd.backward((module(one) * direction.to(type_)).sum())
        assert one.grad is not None
        found.append(one.grad.float().numpy())
    assert_near(*found, HALVES[dtype])


@pytest.mark.parametrize("kind", KINDS)
def test_a_norm_in_float64_is_in_float64(kind: str) -> None:
    module, x = randomised(kind, 8).double(), torch.tensor(random_inputs(small()))
    assert module(x).dtype == torch.float64
    assert_near(module(x).detach().numpy(), truth(module, kind, x), FLOAT64)


def test_layernorm_far_from_zero() -> None:
    """A variance as mean(x^2) - mean(x)^2 would lose all but a digit of it: 2000^2 has the spacing 0.25 in float32."""
    x = torch.tensor(np.random.default_rng(0).normal(2000, 1, (500, 4)), dtype=torch.float32)
    module = randomised("layernorm", 4)
    assert_near(module(x).detach().numpy(), truth(module, "layernorm", x), 1e-3)


@pytest.mark.parametrize("value", [0.0, 3.0, -1e4])
def test_layernorm_of_a_constant_row_is_its_bias(value: float) -> None:
    module = randomised("layernorm", 8)
    x = torch.full((2, 8), value, requires_grad=True)
    y = module(x)
    assert torch.equal(y, module.get_parameter("bias").expand(2, 8))
    torch.autograd.backward((y * signs((2, 8))).sum())
    assert x.grad is not None
    assert x.grad.isfinite().all()


@pytest.mark.parametrize(
    ("placement", "kind"),
    [
        pytest.param(placement, kind, id=f"{placement.name}-{kind}")
        for placement in placements()
        for kind in ("layernorm", "l2norm")
        if takes(placement, kind)
    ],
)
def test_an_input_of_zeros(placement: Placement, kind: str) -> None:
    model = model_of(as_small(placement, norm=kind))
    x = torch.zeros(2, 5, 8, dtype=torch.float64, requires_grad=True)
    output = model(**arguments_of(model.spec) | {"inputs": x})
    torch.autograd.backward((output * output.detach()).sum())
    assert output.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients(model).values())
    assert x.grad is not None
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("placement", ["pre", "post", "peri", "pre-and-post"])
def test_what_is_not_a_number_stays_in_its_sequence(placement: str, kind: str) -> None:
    model = model_of(small(placement, norm=kind))
    x = inputs_of(model.spec)
    clean = model(x)
    x[0, 2, 3] = torch.nan
    output = model(x)
    assert output[0].isnan().any()
    assert torch.equal(output[1], clean[1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_what_is_not_a_number_stays_in_its_token(placement: str, kind: str) -> None:
    """Without attention."""
    model = model_of(small(placement, norm=kind, sublayers=("mlp",)))
    x = inputs_of(model.spec)
    clean = model(x)
    x[0, 2, 3] = torch.nan
    touched = model(x).isnan().any(dim=-1)
    assert touched.nonzero().tolist() == [[0, 2]]
    assert torch.equal(model(x)[~touched], clean[~touched])


@pytest.mark.parametrize("positions", ["none", "relative", "rotary"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_a_sequence_of_which_nothing_is_real(dtype: torch.dtype, positions: str) -> None:
    """Its tokens see nothing, and take nothing: the oracle's answer, with finite gradients."""
    spec = small("pre", positions=positions)
    mask = torch.tensor([[True] * 5, [False] * 5])
    arrays, inputs = random_weights(spec), random_inputs(spec)
    model = model_of(spec, arrays).to(dtype)
    output = model(torch.tensor(inputs, dtype=dtype), mask)
    # float32: ten roundings of 2^-24; bfloat16: of 2^-8, and of the weights
    tolerance = {torch.float64: FLOAT64, torch.float32: 1e-5, torch.bfloat16: 5e-2}[dtype]
    expected = oracle.run(spec, arrays, inputs, mask.numpy()).output
    assert_near(output.detach().double().numpy(), expected, tolerance)
    torch.autograd.backward(output.sum())
    assert all(gradient.isfinite().all() for gradient in gradients(model).values())


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("placement", placements(), ids=title)
def test_a_model_in_half_precision(placement: Placement, dtype: torch.dtype) -> None:
    spec = as_small(placement, gated=True, positions="rotary", **LANGUAGE)
    arguments = arguments_of(spec)
    if spec.encoder is not None:
        arguments["source"] = arguments["source"].to(dtype)
    output = build(spec).to(dtype)(**arguments)
    assert output.dtype == dtype
    # a dozen roundings one after another
    expected = model_of(spec, oracle.weights(spec))(**arguments_of(spec))
    assert_near(output.detach().float().numpy(), expected.detach().numpy(), 8 * HALVES[dtype])


@pytest.mark.parametrize("placement", ["pre", "post", "rezero"])
def test_a_model_under_autocast(placement: str) -> None:
    model = build(small(placement, **LANGUAGE))
    x = inputs_of(model.spec)
    expected = model(x)
    with torch.autocast("cpu", torch.bfloat16):
        output = model(x)
    assert_near(output.detach().float().numpy(), expected.detach().numpy(), 8 * HALVES[torch.bfloat16])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, *HALVES], ids=str)
@pytest.mark.parametrize("formula", ["rezero", "x + gain(0, 'channel') * f(norm(x))", "x + norm(f(x), gain=0)"])
def test_a_stack_whose_gains_are_zero_is_the_identity(formula: str, dtype: torch.dtype) -> None:
    """To the last bit."""
    model = build(small(formula, layers=6, final="x", norm="rmsnorm")).to(dtype)
    x = inputs_of(model.spec).to(dtype)
    assert all(torch.equal(value, x) for value in model.states(x).stream)
    assert torch.equal(model(x), x)


@pytest.mark.usefixtures("seeded")
class TestDropout:
    """What is dropped, and when."""

    @pytest.mark.parametrize("fields", [{}, {"sublayers": ("attn", "moe"), "experts": 3}], ids=["mlp", "moe"])
    def test_only_in_training(self, fields: dict[str, object]) -> None:
        dropping, whole = (build(small("pre", dropout=p, **LANGUAGE, **fields)) for p in (0.5, 0.0))
        x = inputs_of(whole.spec)
        assert torch.equal(whole(x), whole.eval()(x))
        assert not torch.equal(dropping(x), dropping(x))
        assert torch.equal(dropping.eval()(x), whole(x))

    def test_a_share_of_the_output_is_zero(self) -> None:
        """Of a sublayer's: for 4000 values the share has a deviation of 0.007."""
        dropped = 0.3
        for formula in ("attn(x)", "mlp(x)"):
            model = build(small(f"x = {formula}", layers=1, final="x", dropout=dropped, bias=False))
            x = torch.randn(100, 5, 8)
            share = (model(x) == 0).double().mean().item()
            assert share == pytest.approx(dropped, abs=0.03)

    def test_a_share_of_the_embedding_is_zero(self) -> None:
        model = build(small("pre", dropout=0.3, **LANGUAGE))
        x = inputs_of(model.spec, batch=200)
        assert (model.embedded(x) == 0).double().mean().item() == pytest.approx(0.3, abs=0.03)

    def test_the_mean_stays(self) -> None:
        """What is kept is divided by 1 - p: the mean over 4000 passes is near the pass without."""
        model = build(small("x = mlp(x)", layers=1, final="x", activation="relu", dropout=0.2))
        x = torch.randn(1, 1, 8)
        mean = model(x.expand(4000, 1, 8)).mean(dim=0)
        expected = model.eval()(x)[0]
        assert_near(mean.detach().numpy(), expected.detach().numpy(), 0.1)

    def test_an_encoder_drops_too(self) -> None:
        encoder = small("pre", dropout=0.5)
        model = build(small("pre", sublayers=("attn", "cross", "mlp"), encoder=encoder))
        x, source = inputs_of(model.spec).float(), inputs_of(encoder).float()
        assert not torch.equal(model(x, source=source), model(x, source=source))
        model.eval()
        assert torch.equal(model(x, source=source), model(x, source=source))


def matrices(model: Model) -> dict[str, Tensor]:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.ndim == 2}


@pytest.mark.parametrize("init", ["xavier", "normal", "torch", "scaled"])
def test_every_placement_starts_from_the_same_matrices(init: str) -> None:
    """A step's formula and a layer's name their sublayers apart; each is held beside its like."""
    known: dict[str, Tensor] = {}
    plain = [placement for placement in placements() if as_small(placement).encoder is None]
    for placement in plain:
        for name, matrix in matrices(build(small(placement, init=init, **LANGUAGE))).items():
            assert torch.equal(known.setdefault(name, matrix), matrix), f"{placement.name}: {name}"


def test_no_two_matrices_are_the_same() -> None:
    spec = small("pre", layers=3, hidden=8, sublayers=("attn", "cross", "mlp"), encoder=small("pre", hidden=8))
    for one, other in itertools.combinations(matrices(build(spec)).values(), 2):
        assert not torch.equal(one, other)


def test_another_seed_is_another_model() -> None:
    one, same, other = (matrices(build(small(seed=seed))) for seed in (0, 0, 1))
    for name in one:
        assert torch.equal(one[name], same[name])
        assert not torch.equal(one[name], other[name])


@pytest.fixture(params=[torch.float64, torch.bfloat16], ids=str)
def default(request: pytest.FixtureRequest) -> Iterator[torch.dtype]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(before)


def test_a_model_has_the_default_dtype(default: torch.dtype) -> None:
    spec = small("rezero", positions="rotary", **LANGUAGE)
    model = build(spec)
    assert {parameter.dtype for parameter in model.parameters()} == {default}
    assert model(inputs_of(spec)).dtype == default
    for name, array in oracle.weights(spec).items():
        assert torch.equal(model.state_dict()[name], torch.tensor(array, dtype=default))


@pytest.mark.parametrize(
    "spec",
    [
        small("pre", init="torch", **LANGUAGE),
        small("pre", positions="relative", sublayers=("attn", "moe"), experts=2),
        small("pre", sublayers=("attn", "cross", "mlp"), encoder=small("post", vocab=5)),
    ],
    ids=["language model", "experts", "encoder and decoder"],
)
def test_building_leaves_the_global_generators_alone(spec: Spec) -> None:
    state, numpy = torch.get_rng_state(), np.random.get_state()[1].copy()
    build(spec).eval()
    assert torch.equal(torch.get_rng_state(), state)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy)
