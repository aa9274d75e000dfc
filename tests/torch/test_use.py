"""A model is an ordinary module: compiled, exported, vectorised, copied, saved, given sublayers of one's own."""

import copy
import io
import pickle
import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from normula.catalog import placements
from normula.formula import Placement
from normula.spec import Spec, plan
from normula.torch import Cache, Model, build
from tests.cases import OTHERS, PADDED, as_small, small, title
from tests.near import FLOAT32, FLOAT64, SAME_PROGRAM, assert_gradients_near, assert_near
from tests.torch.models import arguments_of, gradients, inputs_of, model_of

LANGUAGE = dict(vocab=7, causal=True)
STACKS: dict[str, dict[str, Any]] = {
    "vectors": {},
    "language model": LANGUAGE,
    "classifier": {"classes": 3},
    "classifier of values": {"features": 3, "classes": 4},
    "rotary, grouped, gated": {
        **LANGUAGE,
        "positions": "rotary",
        "heads": 4,
        "kv_heads": 2,
        "gated": True,
        "width": 16,
    },
    "relative": {**LANGUAGE, "positions": "relative"},
    "experts": {**LANGUAGE, "sublayers": ("attn", "moe"), "experts": 3},
    "encoder and decoder": {**LANGUAGE, "sublayers": ("attn", "cross", "mlp"), "encoder": small("post", vocab=7)},
}


def near(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    assert_near(actual.detach().numpy(), expected.detach().numpy(), tolerance)


def backward(model: nn.Module, output: Tensor) -> dict[str, Tensor]:
    """Gradients of the sum of squares."""
    model.zero_grad(set_to_none=True)
    torch.autograd.backward(output.square().sum())
    return gradients(model)


def same(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Equal bit for bit."""
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(actual[name], tensor), name


class TestCompiled:
    @pytest.fixture(autouse=True)
    def fresh(self, unchecked: None) -> None:
        torch.compiler.reset()

    @pytest.mark.parametrize("placement", [*placements(), *OTHERS], ids=title)
    def test_as_one_graph(self, placement: Placement) -> None:
        model = model_of(as_small(placement, layers=1, **LANGUAGE))
        arguments = arguments_of(model.spec)
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        with torch.no_grad():
            assert torch.equal(compiled(**arguments), model(**arguments))

    @pytest.mark.parametrize("stack", STACKS)
    def test_as_one_graph_with_gradients(self, stack: str) -> None:
        model = model_of(small("peri", **STACKS[stack]))
        arguments = arguments_of(model.spec)
        expected = backward(model, model(**arguments))
        same(backward(model, torch.compile(model, fullgraph=True, backend="eager")(**arguments)), expected)

    @pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
    @pytest.mark.skipif(" " in torch.__file__, reason="torch does not quote its own path when it links")
    def test_to_machine_code(self) -> None:
        model = model_of(small("pre", layers=1, **LANGUAGE)).float()
        arguments = arguments_of(model.spec)
        expected = model(**arguments)
        near(torch.compile(model, fullgraph=True)(**arguments), expected, FLOAT32)


@pytest.mark.parametrize("stack", STACKS)
def test_an_exported_program_is_saved_and_loaded(stack: str) -> None:
    model = model_of(small("peri", layers=1, **STACKS[stack])).eval()
    arguments = arguments_of(model.spec)
    saved = io.BytesIO()
    torch.export.save(torch.export.export(model, (), arguments), saved)
    saved.seek(0)
    with torch.no_grad():
        assert torch.equal(torch.export.load(saved).module()(**arguments), model(**arguments))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("positions", ["learned", "rotary", "relative"])
def test_an_exported_program_takes_other_lengths(positions: str) -> None:
    model = model_of(small("pre", layers=1, positions=positions, **LANGUAGE)).eval()
    sizes = {0: torch.export.Dim("batch", min=2, max=64), 1: torch.export.Dim("tokens", min=2, max=6)}
    program = torch.export.export(model, (inputs_of(model.spec),), dynamic_shapes={"inputs": sizes})
    other = inputs_of(model.spec, batch=3, tokens=4)
    near(program.module()(other), model(other), SAME_PROGRAM)


class TestFunctional:
    """`torch.func` on a model: parameters as an argument."""

    # the fused attention of CPUs has no batching rule, which costs time only
    pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")

    @pytest.mark.parametrize("placement", ["pre", "post", OTHERS[0]], ids=title)
    def test_a_gradient_for_each_sample(self, placement: str | Placement) -> None:
        model = model_of(small(placement, **LANGUAGE))
        x = inputs_of(model.spec)
        parameters = dict(model.named_parameters())

        def loss(parameters: dict[str, Tensor], one: Tensor) -> Tensor:
            return torch.func.functional_call(model, parameters, (one[None],)).square().sum()

        each = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, x)
        for sample, one in enumerate(x):
            expected = {name: gradient.numpy() for name, gradient in backward(model, model(one[None])).items()}
            assert_gradients_near({name: each[name][sample].detach().numpy() for name in expected}, expected, FLOAT64)

    @pytest.mark.parametrize("placement", ["pre", "post"])
    def test_a_directional_derivative(self, placement: str) -> None:
        model = model_of(small(placement))
        x, direction = inputs_of(model.spec), inputs_of(model.spec, seed=2)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # the fused one has no forward mode
            _, along = torch.func.jvp(model, (x,), (direction,))
            jacobian = torch.func.jacrev(model)(x)
        near(along, torch.einsum("abcxyz,xyz->abc", jacobian, direction), FLOAT64)

    def test_an_ensemble(self) -> None:
        models = [model_of(small("pre", seed=seed)) for seed in range(3)]
        parameters, buffers = torch.func.stack_module_state(models)
        x = inputs_of(models[0].spec)

        def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> Tensor:
            return torch.func.functional_call(models[0], (parameters, buffers), (x,))

        outputs = torch.func.vmap(one)(parameters, buffers)
        for model, output in zip(models, outputs, strict=True):
            near(output, model(x), SAME_PROGRAM)


def through_pickle(model: Model) -> Model:
    return pickle.loads(pickle.dumps(model))


def through_file(model: Model) -> Model:
    saved = io.BytesIO()
    torch.save(model.state_dict(), saved)
    saved.seek(0)
    other = build(model.spec).double()
    other.load_state_dict(torch.load(saved, weights_only=True))
    return other


@pytest.mark.parametrize("through", [copy.deepcopy, through_pickle, through_file])
@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("placement", ["peri", OTHERS[1]], ids=title)
def test_a_copy_computes_the_same(placement: str | Placement, stack: str, through: Callable[[Model], Model]) -> None:
    model = model_of(small(placement, **STACKS[stack]))
    arguments = arguments_of(model.spec)
    other = through(model)
    assert torch.equal(other(**arguments), model(**arguments))
    assert other.spec == model.spec

    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert all(parameter.any() for name, parameter in model.named_parameters()), "a copy shares its weights"


def test_every_parameter_is_in_the_plan() -> None:
    for fields in STACKS.values():
        spec = small("olmo2", **fields)
        shapes = {name: tuple(parameter.shape) for name, parameter in build(spec).named_parameters()}
        assert shapes == {name: parameter.shape for name, parameter in plan(spec).parameters.items()}


@pytest.mark.golden
def test_the_names_of_weights_stay(golden: Callable[[str, str], None]) -> None:
    """Saved files depend on them."""
    same = dict(layers=1, width=8, heads=2, hidden=12)
    specs = {
        "pre": Spec(placement="pre", vocab=7, causal=True, **same),
        "post": Spec(placement="post", classes=3, **same),
        "encoder and decoder": Spec(
            placement="post",
            sublayers=("attn", "cross", "mlp"),
            causal=True,
            encoder=Spec(placement="pre", positions="relative", gated=True, **same),
            **same,
        ),
    }
    lines = [
        line
        for title, spec in specs.items()
        for line in (f"# {title}", *(f"{name} {tuple(t.shape)}" for name, t in build(spec).state_dict().items()), "")
    ]
    golden("torch/weights.txt", "\n".join(lines))


class TestOwnSublayers:
    """Modules of the user's own."""

    def test_one_for_the_mlp(self) -> None:
        model = build(small("pre"), modules={"mlp": lambda layer: nn.Linear(8, 8)})
        x = inputs_of(model.spec).float()
        h = x
        for layer in model.layers:
            h = h + layer.attn.f(layer.attn.norm_in(h), model.around(h))
            own = layer.mlp.f
            assert isinstance(own, nn.Linear)
            h = h + own(layer.mlp.norm_in(h))
        assert torch.equal(model(x), model.final.norm(h))

    def test_one_for_a_word_that_a_spec_cannot_build(self) -> None:
        made = []

        def pool(layer: int) -> nn.Module:
            made.append(layer)
            return nn.Identity()

        model = build(small("x = x + 0.5 * pool(x)", final="x"), modules={"pool": pool})
        x = inputs_of(model.spec).float()
        near(model(x), 2.25 * x, FLOAT32)
        assert made == [0, 1]

    def test_it_keeps_the_weights_it_was_made_with(self, seeded: None) -> None:
        kept = []

        def linear(layer: int) -> nn.Module:
            kept.append(nn.Linear(8, 8))
            return kept[-1]

        model = build(small("pre"), modules={"mlp": linear})
        for layer, own in zip(model.layers, kept, strict=True):
            assert layer.mlp.f is own
            assert own.weight.device.type == "cpu"
            assert 0 < own.weight.abs().max() <= 8**-0.5  # the bound of torch's own start

    def test_its_buffers_and_gradients_are_the_models(self) -> None:
        factory = lambda layer: nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(5))  # noqa: E731
        model = build(small("pre"), modules={"mlp": factory})
        assert "layers.1.mlp.f.1.running_mean" in model.state_dict()
        found = backward(model, model(inputs_of(model.spec).float()))
        assert found["layers.0.mlp.f.0.weight"].any()

    @pytest.mark.negative
    @pytest.mark.parametrize(
        ("modules", "message"),
        [
            ({"mlp": nn.Linear(8, 8)}, "every layer needs its own"),
            ({"conv": lambda layer: nn.Linear(8, 8)}, "no layer has a sublayer conv"),
            ({"mlp": lambda layer: torch.zeros(8)}, "returns a torch.nn.Module for each layer, not Tensor"),
        ],
        ids=["one module", "unused", "no module"],
    )
    def test_what_is_refused(self, modules: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            build(small("pre"), modules=modules)

    @pytest.mark.negative
    def test_a_word_without_a_module_is_refused(self) -> None:
        with pytest.raises(ValueError, match="give a module for it"):
            build(small("x + conv(norm(x))"))


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("stack", STACKS)
def test_checkpointing_changes_no_gradient(stack: str, dropout: float, seeded: None) -> None:
    model = model_of(small("peri", dropout=dropout, **STACKS[stack]))
    arguments = arguments_of(model.spec)
    state = torch.get_rng_state()
    expected = backward(model, model(**arguments))
    torch.set_rng_state(state)
    model.checkpointing = True
    same(backward(model, model(**arguments)), expected)


@pytest.mark.parametrize("final", ["x", "norm(x)"])
@pytest.mark.parametrize("placement", ["pre", "post", OTHERS[0]], ids=title)
def test_the_states_of_a_pass(placement: str | Placement, final: str) -> None:
    model = model_of(small(placement, final=final, layers=3, **LANGUAGE))
    x = inputs_of(model.spec)
    states = model.states(x, torch.tensor(PADDED))
    assert len(states.stream) == 4
    positions = model.embed.positions.weight[: x.shape[1]]
    assert torch.equal(states.stream[0], model.embed.tokens.weight[x] + positions)
    last = states.stream[-1]
    assert torch.equal(states.closed, last if final == "x" else model.final.norm(last))
    assert torch.equal(states.output, states.closed @ model.head.weight.T)
    assert torch.equal(states.output, model(x, torch.tensor(PADDED)))


def test_the_states_of_a_shorter_stack_are_the_first_ones() -> None:
    long, short = (model_of(small("pre", layers=layers)) for layers in (3, 2))
    short.load_state_dict(long.state_dict(), strict=False)
    x = inputs_of(long.spec)
    for ours, theirs in zip(long.states(x).stream, short.states(x).stream, strict=False):
        assert torch.equal(ours, theirs)


CACHED: dict[str, dict[str, Any]] = {
    "learned": {},
    "rotary": {"positions": "rotary"},
    "relative": {"positions": "relative"},
    "grouped": {"heads": 4, "kv_heads": 2, "positions": "none"},
    "tied": {"tied": True},
    "cross": {"sublayers": ("attn", "cross", "mlp"), "encoder": small("pre", vocab=7)},
}


class TestCache:
    @pytest.mark.parametrize("masked", [False, True], ids=["all", "left-padded"])
    @pytest.mark.parametrize("chunks", [[1] * 6, [4, 2], [1, 3, 2], [6]], ids=str)
    @pytest.mark.parametrize("stack", CACHED)
    def test_in_chunks_as_at_once(self, stack: str, chunks: list[int], masked: bool) -> None:
        model = model_of(small("peri", **LANGUAGE | CACHED[stack])).eval()
        x = inputs_of(model.spec, tokens=6)
        mask = torch.tensor([[False] * 2 + [True] * 4, [True] * 6]) if masked else None
        others = {name: value for name, value in arguments_of(model.spec).items() if name.startswith("source")}
        expected = model(x, mask, **others)

        cache, parts, end = Cache(), [], 0
        for size in chunks:
            first, end = end, end + size
            part = None if mask is None else mask[:, :end]
            parts.append(model(x[:, first:end], part, cache=cache, **(others if first == 0 else {})))
        assert cache.length == 6
        near(torch.cat(parts, dim=1), expected, SAME_PROGRAM)

    def test_the_source_may_be_given_each_time(self) -> None:
        model = model_of(small("pre", **LANGUAGE | CACHED["cross"]))
        arguments = arguments_of(model.spec)
        x, others = arguments["inputs"], {name: arguments[name] for name in ("source", "source_mask")}
        cache = Cache()
        parts = [model(x[:, t : t + 1], cache=cache, **others) for t in range(5)]
        near(torch.cat(parts, dim=1), model(x, **others), SAME_PROGRAM)

    def test_with_checkpointing(self) -> None:
        model = model_of(small("pre", **LANGUAGE))
        x = inputs_of(model.spec)
        expected = backward(model, model(x))
        model.checkpointing = True
        same(backward(model, model(x, cache=Cache())), expected)

    @pytest.mark.negative
    @pytest.mark.parametrize(
        ("fields", "message"),
        [({"vocab": 7}, "causal"), ({"causal": True, "classes": 3}, "classifier")],
        ids=["bidirectional", "classifier"],
    )
    def test_where_it_cannot_be(self, fields: dict[str, Any], message: str) -> None:
        model = build(small("pre", **fields))
        with pytest.raises(ValueError, match=message):
            model(inputs_of(model.spec).to(torch.long if "vocab" in fields else torch.float), cache=Cache())


@pytest.mark.negative
@pytest.mark.usefixtures("unchecked")
class TestRefused:
    """Inputs that cannot be."""

    @pytest.mark.parametrize("shape", [(2, 4), (5, 2), (1, 5), (2, 1, 5)])
    def test_a_mask_of_another_shape(self, shape: tuple[int, ...]) -> None:
        model = build(small("pre", **LANGUAGE))
        with pytest.raises(ValueError, match=r"a mask has the shape \(B, T\) = \(2, 5\)"):
            model(inputs_of(model.spec), torch.ones(shape, dtype=torch.bool))

    def test_a_mask_of_the_new_tokens_only(self) -> None:
        model, cache = build(small("pre", **LANGUAGE)), Cache()
        x = inputs_of(model.spec)
        model(x[:, :3], cache=cache)
        with pytest.raises(ValueError, match=r"\(2, 5\), this one has \(2, 2\)"):
            model(x[:, 3:], torch.ones(2, 2, dtype=torch.bool), cache=cache)

    def test_more_tokens_than_positions(self) -> None:
        model = build(small("pre", **LANGUAGE))
        with pytest.raises(ValueError, match="reach 6 tokens, the input has 7"):
            model(inputs_of(model.spec, tokens=7))

    def test_more_tokens_than_positions_with_a_cache(self) -> None:
        model, cache = build(small("pre", **LANGUAGE)), Cache()
        x = inputs_of(model.spec, tokens=6)
        model(x, cache=cache)
        with pytest.raises(ValueError, match="reach 6 tokens, the input has 7"):
            model(x[:, :1], cache=cache)

    @pytest.mark.parametrize("inputs", [torch.zeros(2, 5), torch.zeros(2, 5, 8), torch.zeros(5, dtype=torch.long)])
    def test_anything_but_ids(self, inputs: Tensor) -> None:
        with pytest.raises(ValueError, match=r"\(B, T\) tensor of ids"):
            build(small("pre", **LANGUAGE))(inputs)

    @pytest.mark.parametrize("shape", [(2, 5), (2, 5, 8), (1, 2, 5, 3)])
    def test_anything_but_values_of_the_features(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(ValueError, match=r"shape \(B, T, 3\)"):
            build(small("pre", features=3))(torch.zeros(shape))

    def test_more_values_than_positions(self) -> None:
        with pytest.raises(ValueError, match="reach 6 tokens, the input has 7"):
            build(small("pre", features=3))(torch.zeros(1, 7, 3))

    @pytest.mark.parametrize("shape", [(2, 5), (2, 5, 7), (8,), (1, 2, 5, 8)])
    def test_anything_but_vectors_of_the_width(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(ValueError, match=r"shape \(B, T, 8\)"):
            build(small("pre"))(torch.zeros(shape))

    def test_an_encoder_without_a_source(self) -> None:
        model = build(small("pre", **STACKS["encoder and decoder"]))
        with pytest.raises(ValueError, match="a source goes with an encoder"):
            model(inputs_of(model.spec))

    def test_a_source_without_an_encoder(self) -> None:
        model = build(small("pre"))
        x = inputs_of(model.spec).float()
        with pytest.raises(ValueError, match="a source goes with an encoder"):
            model(x, source=x)

    def test_a_source_mask_without_a_source(self) -> None:
        model = build(small("pre"))
        with pytest.raises(ValueError, match="give the source too"):
            model(inputs_of(model.spec).float(), source_mask=torch.tensor(PADDED))

    def test_a_source_mask_of_another_shape(self) -> None:
        model = build(small("pre", **STACKS["encoder and decoder"]))
        with pytest.raises(ValueError, match=r"\(B, S\) = \(2, 4\), not \(2, 5\)"):
            model(**arguments_of(model.spec) | {"source_mask": torch.tensor(PADDED)})
