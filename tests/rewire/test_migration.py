"""The way of a trained model to another placement: both ends, what lies between, and the training on it."""

import io
import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

import normula as nm
from normula.cli import main
from normula.data import task
from normula.record import from_json, to_json
from normula.record.migration import Migrated
from normula.report.migration import print_migration
from normula.rewire import RewireError, migrate, migration
from normula.spec import Recipe
from tests.rewire.families import FAMILIES, apart, random_vectors
from tests.rewire.models import Open, Whole, perturbed, stack

Made = tuple[nn.Module, Any]
IDS = (torch.zeros(1, 8, dtype=torch.long),)


def family(name: str) -> Callable[[], Made]:
    def make() -> Made:
        if "encoder" not in name:
            pytest.importorskip("transformers")
        model, example = FAMILIES[name]()
        return random_vectors(model).eval(), example

    return make


def seeded(make: Callable[[], nn.Module], example: Any) -> Callable[[], Made]:
    def made() -> Made:
        torch.manual_seed(0)
        return perturbed(make()).double(), example

    return made


VALUES = (torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(1)).double(),)
SYMBOLS = (torch.arange(12).view(2, 6),)
MODELS: dict[str, tuple[Callable[[], Made], str]] = {
    "home-made, post": (lambda: stack("post", 3, double=True), "pre peri deepnorm"),
    "home-made, pre": (lambda: stack("pre", 3, double=True), "post peri"),
    "home-made, a norm shared": (lambda: stack("shared", double=True), "post"),
    "home-made, parallel": (lambda: stack("parallel", double=True), "pre post"),
    "layers in the open": (seeded(Open, VALUES), "post peri"),
    "one forward, post": (seeded(lambda: Whole(post=True), SYMBOLS), "pre deepnorm"),
    "one forward, pre": (seeded(Whole, SYMBOLS), "post peri"),
    "encoder, post": (family("encoder layers, post"), "pre deepnorm"),
    "encoder, post and final": (family("encoder layers, post and final"), "pre post"),
    "encoder, pre": (family("encoder layers, pre"), "post peri"),
    "gpt2": (family("gpt2"), "post peri"),
    "bert": (family("bert"), "pre deepnorm"),
    "bart": (family("bart"), "pre"),
    "deepnorm by hand": (family("home-made deepnorm"), "pre"),
    "admin by hand": (family("home-made admin"), "post"),
}
"""Models with random gains in float64, and where each is moved to."""

MOVES = [(name, to) for name, (_, targets) in MODELS.items() for to in targets.split()]


@pytest.mark.parametrize(("name", "to"), MOVES)
def test_at_its_ends_it_is_the_old_model_and_the_rewired_one(name: str, to: str) -> None:
    model, example = MODELS[name][0]()
    move = migration(model, to, example=example)
    new = nm.rewire(model, to, example=example, accept_inexact=True)
    assert apart(model, move.model, example) < 1e-12
    move.at(1)
    assert apart(new, move.model, example) < 1e-12
    assert apart(new, move.finished(), example) < 1e-12
    move.at(0.5)
    assert min(apart(one, move.model, example) for one in (model, new)) > 1e-3
    move.at(0)
    assert apart(model, move.model, example) < 1e-12


@pytest.mark.parametrize("to", ["layerscale", "qk-norm", "mix-ln", "parallel", "ngpt", "b2t", "keel"])
def test_gains_ranges_and_norms_inside_come_by_degrees_too(to: str) -> None:
    model, example = stack("pre" if to in ("mix-ln", "parallel") else "post", 4, double=True)
    move = migration(model, to, example=example)
    new = nm.rewire(model, to, example=example, accept_inexact=True)
    shares = (0, 1e-4, 1 - 1e-4, 1)
    distances = []
    for share in shares:
        move.at(share)
        distances.append((apart(model, move.model, example), apart(new, move.model, example)))
    assert distances[0][0] < 1e-12
    assert 1e-12 < distances[1][0] < 0.05
    assert 1e-12 < distances[2][1] < 0.05
    assert distances[3][1] < 1e-12


def normed(norm: nn.Module, x: Tensor) -> Tensor:
    """LayerNorm by its definition, with a norm's parameters."""
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight + norm.bias


def between(model: Any, x: Tensor, share: float) -> Tensor:
    """From Post-LN to Pre-LN: what each sublayer is given, the stream after it, and the closing norm."""
    old, new = 1 - share, share
    for block in model.layers:
        for norm, f in ((block.first, block.attention), (block.second, block.mlp)):
            f_x = f(old * x + new * normed(norm, x))
            x = old * normed(norm, x + f_x) + new * (x + f_x)
    return old * x + new * normed(model.layers[-1].final_norm, x)


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_between_its_ends_it_computes_the_closed_form_with_its_gradients(share: float) -> None:
    model, (x,) = stack("post", 3, double=True)
    move = migration(model, "pre", example=(x,))
    move.at(share)
    found, wanted = move.model(x), between(move.model, x, share)
    assert torch.allclose(found, wanted, atol=1e-12, rtol=0)
    parameters = dict(move.model.named_parameters())
    probe = torch.randn(found.shape, generator=torch.Generator().manual_seed(3)).double()
    gradients = [torch.autograd.grad(one, list(parameters.values()), probe) for one in (found, wanted)]
    for name, one, other in zip(parameters, *gradients, strict=True):
        assert torch.allclose(one, other, atol=1e-11, rtol=0), name
        assert bool(one.any()) or name.endswith("k.bias"), name  # softmax does not see the bias of all keys


def test_a_norm_at_an_end_of_the_model_goes_by_degrees() -> None:
    """Pre-LN to Post-LN in one forward: the closing norm goes, the norms of the layers wander."""
    model, (ids,) = MODELS["one forward, pre"][0]()
    move = migration(model, "post", example=(ids,))
    move.at(0.25)
    m: Any = move.model
    x = m.table(ids) + m.positions(torch.arange(ids.shape[1]))
    for norms in zip(m.first, m.attention, m.second, m.mlp, strict=True):
        for norm, f in (norms[:2], norms[2:]):
            f_x = f(0.75 * normed(norm, x) + 0.25 * x)
            x = 0.75 * (x + f_x) + 0.25 * normed(norm, x + f_x)
    last = nn.functional.layer_norm(x, (16,), m.last.weight, m.last.bias, m.last.eps)
    assert torch.allclose(m(ids), m.head(0.75 * last + 0.25 * x), atol=1e-12, rtol=0)


def test_its_state_goes_to_another_one_at_the_same_place() -> None:
    model, (x,) = stack("post")
    moves = [migration(model, "peri", example=(x,)) for _ in range(2)]
    for move in moves:
        move.at(0.4)
    with torch.no_grad():
        for parameter in moves[0].model.parameters():
            parameter += 0.1
    assert not torch.allclose(moves[1].model(x), moves[0].model(x), atol=1e-3)
    moves[1].model.load_state_dict(moves[0].model.state_dict())
    assert torch.equal(moves[1].model(x), moves[0].model(x))
    file = io.BytesIO()
    torch.save(moves[0].model, file)
    file.seek(0)
    for again in (deepcopy(moves[0].model), torch.load(file, weights_only=False)):
        assert torch.equal(again(x), moves[0].model(x))


def test_what_is_finished_is_a_rewired_model_with_the_weights_of_the_way() -> None:
    pytest.importorskip("transformers")
    model, example = MODELS["gpt2"][0]()
    before = deepcopy(model.state_dict())
    move = migration(model, "peri", example=example)
    move.at(0.5)
    with torch.no_grad():
        for parameter in move.model.parameters():
            parameter.mul_(1.1)
    new: Any = move.finished()
    assert nm.read(new, *example).stages[0].block == "x = x + norm(attn(norm(x))); x = x + norm(mlp(norm(x)))"
    assert new.rewiring.proof == "replayed"
    assert set(new.state_dict()) == set(nm.rewire(model, "peri", example=example, accept_inexact=True).state_dict())
    state = move.model.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in new.state_dict().items())
    assert new.lm_head.weight is new.transformer.wte.weight
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert nm.rewire(new, "pre", example=example, accept_inexact=True).rewiring.proof == "replayed"


def test_types_and_modes_of_the_way_are_those_of_what_is_finished() -> None:
    model, (x,) = stack("post")
    move = migration(model, "pre", example=(x,))
    move.model.double().train()
    move.model.layers[0].eval()
    new = move.finished()
    assert {one.dtype for one in new.parameters()} == {torch.float64}
    assert (new.training, new.layers[0].training, new.layers[1].mlp.training) == (True, False, True)


def test_along_so_many_updates() -> None:
    model, (x,) = stack("post", double=True)
    move = migration(model, "pre", example=(x,))
    step = move.along(4)
    step(1, move.model)
    assert torch.allclose(move.model(x), between(move.model, x, 0.25), atol=1e-12, rtol=0)
    step(9, move.model)
    assert apart(nm.rewire(model, "pre", example=(x,), accept_inexact=True), move.model, (x,)) < 1e-12


# ---- with a trainer


def learnt() -> Made:
    """A Post-LN model that has learned something of the text."""
    text = task("text")
    model = nm.build(text.spec(placement="post", layers=2, width=16, heads=2))
    from normula.torch import train

    train(model, text, Recipe(steps=60, lr=1e-2, warmup=10))
    return model, IDS


RECIPE = Recipe(steps=40, lr=3e-3, warmup=5, seed=3)


@pytest.fixture(scope="module")
def model() -> nn.Module:
    return learnt()[0].eval()


@pytest.mark.parametrize("kind", ["path", "distil"])
def test_a_trained_model_is_moved(model: nn.Module, kind: str) -> None:
    before = deepcopy(model.state_dict())
    new, found = migrate(model, "pre", example=IDS, task=task("text"), recipe=RECIPE, kind=kind)
    assert nm.read(new, *IDS).stages[0].names[0] == "pre"
    assert found.moved < found.blind
    assert found.recovered == pytest.approx((found.blind - found.moved) / (found.blind - found.old))
    assert found.moved == pytest.approx(_loss(new), abs=1e-6)
    assert found.old == pytest.approx(_loss(model), abs=1e-6)
    assert (len(found.curve), found.move_steps) == (40, {"path": 20, "distil": 40}[kind])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module.training for module in (*new.modules(), *model.modules()))
    assert from_json(Migrated, to_json(found)) == found


def _loss(model: nn.Module) -> float:
    """Of the held-out text, by its definition."""
    batch = task("text").validation()
    with torch.no_grad():
        logits = model(torch.from_numpy(batch.inputs)).double().numpy()
    return float(-np.take_along_axis(_log_softmax(logits), batch.targets[..., None], -1).mean())


def _log_softmax(logits: Any) -> Any:
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def test_a_teacher_is_followed_by_kl(model: nn.Module) -> None:
    """The first value of the curve is KL(old || new) on the first batch; after the move it is the loss."""
    recipe = Recipe(steps=2, lr=1e-12, seed=3)
    _, found = migrate(model, "pre", example=IDS, task=task("text"), recipe=recipe, kind="distil", move_steps=1)
    batches = task("text").batches(3, recipe.batch)
    new = nm.rewire(model, "pre", example=IDS, accept_inexact=True)
    first, second = next(batches), next(batches)
    with torch.no_grad():
        old_said, new_said = (
            _log_softmax(one(torch.from_numpy(first.inputs)).double().numpy()) for one in (model, new)
        )
        last = _log_softmax(new(torch.from_numpy(second.inputs)).double().numpy())
    assert found.curve[0] == pytest.approx((np.exp(old_said) * (old_said - new_said)).sum(-1).mean(), rel=1e-4)
    assert found.curve[1] == pytest.approx(-np.take_along_axis(last, second.targets[..., None], -1).mean(), rel=1e-4)


@pytest.mark.negative
@pytest.mark.parametrize(
    ("to", "options", "message"),
    [
        ("pre", {"kind": "jump"}, "one of path, distil, not 'jump'"),
        ("pre", {"move_steps": 41}, "takes 1 to 40 updates"),
        ("post", {}, "has the placement post already"),
        ("residual", {}, "needs several streams"),
        ("pre", {"task": task("digits")}, "digits task gives values"),
        ("pre", {"recipe": Recipe(steps=20, lr=1e9)}, "not finite any more at update"),
    ],
)
def test_what_cannot_be_moved_is_refused(model: nn.Module, to: str, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        migrate(model, to, **{"example": IDS, "task": task("text"), "recipe": RECIPE, **options})


def built(**fields: Any) -> nn.Module:
    spec = {"placement": "post", "layers": 2, "width": 16, "heads": 2, "causal": True, "context": 64, "vocab": 256}
    return nm.build(nm.Spec(**{**spec, **fields}))


@pytest.mark.negative
@pytest.mark.parametrize(
    ("fields", "name", "message"),
    [
        ({"vocab": 255}, "text", "ids of 256 symbols, 32 at once"),
        ({"context": 31}, "text", "32 at once"),
        ({"causal": False}, "text", "this model looks ahead"),
        ({"vocab": None}, "text", "forward raises"),
        ({"vocab": 15}, "copy", "ids of 16 symbols"),
    ],
)
def test_a_task_that_does_not_fit_is_refused(fields: Any, name: str, message: str) -> None:
    model = built(**fields)
    example = IDS if model.spec.vocab else (torch.randn(1, 8, 16),)
    with pytest.raises(ValueError, match=message):
        migrate(model, "pre", example=example, task=task(name), recipe=RECIPE)


def test_a_model_that_looks_ahead_has_tasks_too() -> None:
    model = built(causal=False, vocab=16)
    _, found = migrate(model, "pre", example=IDS, task=task("copy"), recipe=Recipe(steps=2, lr=1e-3))
    assert found.task == "copy"


@pytest.mark.negative
def test_a_model_on_its_way_is_not_rewired() -> None:
    model, (x,) = stack("post")
    move = migration(model, "pre", example=(x,))
    for share in (0, 0.5, 1):
        move.at(share)
        with pytest.raises(RewireError, match="on its way from one placement to another"):
            nm.rewire(move.model, "peri", example=(x,), accept_inexact=True)
    for share in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match=r"from 0 .* to 1"):
            move.at(share)
    with pytest.raises(ValueError, match="at least 1 update"):
        move.along(0)


@pytest.mark.negative
def test_a_model_without_weights_has_no_way() -> None:
    model, (x,) = stack("post")
    with pytest.raises(RewireError, match="meta device holds no weights"):
        migration(model.to("meta"), "pre", example=(x.to("meta"),))


# ---- on the command line

MODEL = "tests.rewire.test_migration:learnt"


def test_on_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "pre.safetensors"
    words = ["rewire", MODEL, "--to", "pre", "--migrate", "path", "--steps", "20", "--move", "8", "--lr", "3e-3"]
    assert main([*words, "--batch", "8", "--warmup", "2", "--seed", "5", "--out", str(file)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "8 updates on the way from the old formula to the new one, then 12 of plain training" in said
    assert "task text, rate 0.003, warmup 2, batch 8, seed 5" in said
    assert "of what loading blindly costs is recovered" in said
    new = nm.rewire(learnt()[0], "pre", example=IDS, accept_inexact=True)
    nm.guard.load(new, file, example=IDS)
    assert f"moved {_loss(new.eval()):.3f}" in said


def test_a_distilled_model_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rewire", MODEL, "--to", "peri", "--migrate", "distil", "--steps", "10", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["move_steps"], len(found["curve"])) == ("distil", 10, 10)
    assert found["moved"] < found["blind"]


@pytest.mark.negative
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to", "pre", "--migrate", "jump"], "one of path, distil, not 'jump'"),
        (["--to", "pre", "--migrate", "path", "--dry-run"], "--dry-run would do nothing here"),
        (["--to", "pre", "--migrate", "path", "--accept-inexact"], "--accept-inexact would do nothing here"),
        (["--fold", "--migrate", "path"], "--fold would do nothing here"),
        (["--to", "pre", "--steps", "5"], "--steps is of the training that --migrate does"),
        (["--fold", "--lr", "1e-3"], "--lr is of the training that --migrate does"),
        (["--to", "pre", "--migrate", "path", "--task", "txt"], "a task is one of"),
        (["--to", "pre", "--migrate", "path", "--steps", "4", "--move", "5"], "takes 1 to 4 updates"),
    ],
)
def test_bad_usage_is_refused_in_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rewire", "tests.rewire.test_migration:small", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert "Traceback" not in err


def small() -> Made:
    return built(), IDS


def test_every_stage_of_the_new_model_is_printed() -> None:
    """Mix-LN makes two stages of one: each stands there with where it is."""
    found = Migrated(
        kind="path",
        to="mix-ln",
        before=("layers.0 to layers.3: x = old(x)",),
        after=("layers.0: x = first(x)", "layers.1 to layers.3: x = others(x)"),
        task="copy",
        recipe=Recipe(steps=4, lr=1e-3),
        move_steps=2,
        old=1.0,
        blind=2.0,
        moved=1.0,
        curve=(1.0,) * 4,
    )
    text = io.StringIO()
    print_migration(found, "mine", Console(file=text, width=100))
    assert "-> layers.0: x = first(x)" in text.getvalue()
    assert "-> layers.1 to layers.3: x = others(x)" in text.getvalue()
