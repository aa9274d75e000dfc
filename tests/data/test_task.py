"""Batches: the same for the same seed, targets where they belong."""

import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from normula.data import TASKS, Batch, Copy, ListOps, Recall, Repeat, Task, Text, Translate, corpus, task
from tests.cases import small

NAMES = [name for name in TASKS if not name.startswith("hf:")]


@pytest.fixture(params=NAMES)
def data(request: pytest.FixtureRequest) -> Task:
    if request.param == "digits":
        pytest.importorskip("sklearn")
    return task(request.param)


def drawn(data: Task, seed: int, count: int = 3, first: int = 0) -> list[Batch]:
    return list(islice(data.batches(seed, 4, first), count))


def rows(batch: Batch) -> Iterator[bytes]:
    """Each example by what goes in."""
    for place in range(batch.size):
        yield b"".join(array.tobytes() for array in batch.taken(slice(place, place + 1)).arguments.values())


def assert_same(one: Batch, other: Batch) -> None:
    assert one.arrays.keys() == other.arrays.keys()
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, other.arrays[name], err_msg=name)


def test_a_seed_gives_the_same_batches_each_time_and_another_seed_others(data: Task) -> None:
    for one, same, other in zip(drawn(data, 5), drawn(data, 5), drawn(data, 6), strict=True):
        assert_same(one, same)
        assert (one.inputs != other.inputs).any()
    first, second, _ = drawn(data, 5)
    assert (first.inputs != second.inputs).any()


@pytest.mark.parametrize("first", [1, 15, 16, 21])
def test_a_run_that_goes_on_sees_the_batches_that_it_would_have_seen(data: Task, first: int) -> None:
    whole = drawn(data, 7, count=first + 20)
    for one, expected in zip(drawn(data, 7, count=20, first=first), whole[first:], strict=True):
        assert_same(one, expected)


def test_batches_of_text_and_copy_are_those_of_one_generator() -> None:
    """In the order in which they were drawn from the start."""
    random = np.random.default_rng([3, 1])
    for one in islice(Copy().batches(3, 5), 4):
        np.testing.assert_array_equal(one.inputs, random.integers(0, 16, (5, 8)))
    text = corpus().train
    random = np.random.default_rng([3, 1])
    for one in islice(task("text").batches(3, 5), 4):
        for row, start in zip(one.inputs, random.integers(0, len(text) - 32, 5), strict=True):
            np.testing.assert_array_equal(row, text[start : start + 32])


def test_the_validation_batch_is_fixed_and_in_no_training_batch(data: Task) -> None:
    fixed = data.validation()
    assert_same(fixed, data.validation())
    seen = {row for batch in islice(data.batches(0, 64), 5) for row in rows(batch)}
    assert not seen & set(rows(fixed))


@pytest.mark.parametrize("small", [Repeat(symbols=3, context=6), Translate(symbols=2, context=5), Recall(2, 2, 6)])
def test_even_a_task_with_few_examples_holds_some_out(small: Task) -> None:
    held = set(rows(small.validation(200)))
    seen = {row for batch in islice(small.batches(0, 64), 30) for row in rows(batch)}
    assert held
    assert seen
    assert not held & seen


@pytest.mark.negative
def test_a_task_that_has_too_few_examples_says_so() -> None:
    with pytest.raises(ValueError, match="too few different examples to hold some out"):
        Repeat(symbols=1, context=2).validation()


def test_shapes_and_ids_are_what_the_task_says(data: Task) -> None:
    batch = next(data.batches(0, 5))
    assert isinstance(data, Task)
    assert batch.inputs.shape == ((5, data.context) if data.features is None else (5, data.context, data.features))
    assert batch.targets.shape == ((5,) if data.classes else (5, data.context))
    assert batch.targets.dtype == np.int64
    assert batch.inputs.dtype == (np.float32 if data.features else np.int64)
    ids = [array for array in (batch.inputs, batch.source) if array is not None and data.vocab is not None]
    assert all(array.min() >= 0 and array.max() < (data.vocab or 0) for array in ids)
    assert batch.targets.min() >= -1
    assert 0 <= batch.targets.max() < (data.classes or data.vocab or 0)
    if batch.source is not None and batch.source_mask is not None:
        assert batch.source_mask.dtype == bool
        assert batch.source_mask.shape == batch.source.shape


def test_the_size_of_the_validation_batch(data: Task) -> None:
    assert data.validation(7).size == 7
    assert data.validation().size >= 64


def test_the_stuck_loss_is_the_entropy_of_what_is_to_be_said(data: Task) -> None:
    """Of the targets that some thousand examples have: within three deviations of a mean over some hundred."""
    targets = np.concatenate([batch.targets.ravel() for batch in islice(data.batches(1, 64), 100)])
    counts = np.bincount(targets[targets >= 0])
    shares = counts[counts > 0] / counts.sum()
    entropy = -(shares * np.log(shares)).sum()
    deviation = math.sqrt((shares * np.log(shares) ** 2).sum() - entropy**2)
    scored = (data.validation().targets >= 0).sum()
    windows = 10 if data.name == "text" else 1  # its bytes come in words, not one by one
    assert abs(data.stuck_loss - entropy) < 0.02 + 3 * deviation * math.sqrt(windows / scored)


def test_in_a_text_each_token_foretells_the_next() -> None:
    data = task("text", context=16)
    batch = next(data.batches(0, 8))
    np.testing.assert_array_equal(batch.targets[:, :-1], batch.inputs[:, 1:])
    train = bytes(data.corpus.train)  # type: ignore[attr-defined]
    for row, last in zip(batch.inputs, batch.targets[:, -1], strict=True):
        assert bytes([*row.astype(np.uint8), last]) in train


def test_windows_reach_both_ends_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"<" + b"." * 178 + b">" + b"-" * 20)
    data = task("text", str(path), 4)
    seen = np.concatenate([np.concatenate([b.inputs, b.targets], 1).ravel() for b in islice(data.batches(0, 64), 60)])
    assert {ord("<"), ord(">")} <= set(seen)


def test_in_the_copy_task_each_position_gives_back_its_own() -> None:
    data = Copy(symbols=5, context=7)
    batch = next(data.batches(0, 100))
    np.testing.assert_array_equal(batch.inputs, batch.targets)
    assert set(batch.inputs.flat) == set(range(5))
    assert (data.vocab, data.context, data.causal) == (5, 7, False)
    assert data.stuck_loss == math.log(5)


def test_a_model_that_learns_how_often_each_byte_comes_ends_at_the_stuck_loss() -> None:
    data = task("text")
    assert isinstance(data, Text)
    assert data.stuck_loss == corpus().unigram_loss(data.validation().targets)
    assert 2.5 < data.stuck_loss < math.log(256)


def test_a_digest_tells_tasks_apart(data: Task) -> None:
    assert data.digest == task(data.name).digest
    assert [name for name in NAMES if name != "digits" and task(name).digest == data.digest] in ([], [data.name])


@pytest.mark.parametrize(
    ("one", "others"),
    [
        (Copy(), [Copy(symbols=5), Copy(context=5)]),
        (Repeat(), [Repeat(symbols=5), Repeat(context=8)]),
        (Translate(), [Translate(symbols=5), Translate(context=8)]),
        (Recall(), [Recall(keys=5), Recall(values=5), Recall(context=40)]),
        (ListOps(), [ListOps(depth=2), ListOps(arguments=4), ListOps(context=32)]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_digest_changes_with_every_number_of_a_rule(one: Task, others: list[Task]) -> None:
    digests = {one.digest, *(other.digest for other in others)}
    assert len(digests) == 1 + len(others)


def test_a_digest_changes_with_the_rule_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Recall().digest
    sample = Recall.sample

    def shifted(self: Recall, random: np.random.Generator, size: int) -> Batch:
        batch = sample(self, random, size)
        return Batch(batch.inputs, np.where(batch.targets < 0, batch.targets, self.keys))

    monkeypatch.setattr(Recall, "sample", shifted)
    assert Recall().digest != before


@pytest.mark.negative
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("txet",), "a task is one of text, copy, .*, listops, hf:NAME, not 'txet'; did you mean 'text'?"),
        (("copy", "file.txt"), "the copy task makes its own data; give a file with the task text"),
        (("digits", "file.txt"), "the digits task makes its own data; give a file with the task text"),
        (("hf:name", "file.txt"), "the hf:name task makes its own data; give a file with the task text"),
        (("text", "/nowhere/file.txt"), "there is no file /nowhere/file.txt"),
        (("text", []), "a text needs at least one file; without any, leave the path out"),
        (("digits", None, 8), "the images of digits have 16 patches; leave out context=8"),
        (("repeat", None, 7), "its context is an even number, not 7"),
        (("recall", None, 16), "its context is an even number above 16, not 16"),
        (("recall", None, 33), "its context is an even number above 16, not 33"),
        (("translate", None, 4), "its context is at least 5, not 4"),
        (("listops", None, 3), "the context of listops is at least 4, not 3"),
        (("copy", None, 0), "the context of a task is a whole number of at least 1, not 0"),
        (("text", None, -1), "the context of a task is a whole number of at least 1, not -1"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        task(*arguments)


@pytest.mark.parametrize(("name", "context"), [("repeat", 4), ("recall", 18), ("translate", 5), ("listops", 4)])
def test_the_shortest_contexts_that_are_taken(name: str, context: int) -> None:
    data = task(name, context=context)
    assert next(data.batches(0, 3)).inputs.shape == (3, context)
    assert data.validation(3).inputs.shape == (3, context)


class TestSpec:
    def test_it_has_from_the_task_what_is_the_tasks(self, data: Task) -> None:
        spec = data.spec(placement="post", layers=2, width=8, heads=2, norm="rmsnorm", init="torch", seed=3)
        assert spec.placed.name == "post"
        assert (spec.layers, spec.width, spec.norm, spec.init, spec.seed) == (2, 8, "rmsnorm", "torch", 3)
        for name in ("vocab", "features", "classes", "context", "causal"):
            assert getattr(spec, name) == getattr(data, name)
        assert spec.positions == "learned"
        assert (spec.encoder is not None) == (data.name == "translate")

    def test_its_context_gives_the_task_again(self, data: Task) -> None:
        assert task(data.name, context=data.spec().context).digest == data.digest

    @pytest.mark.negative
    @pytest.mark.parametrize("name", ["vocab", "features", "classes", "context", "causal"])
    def test_what_is_the_tasks_cannot_be_given(self, data: Task, name: str) -> None:
        with pytest.raises(ValueError, match=f"{name} of a model comes from the task {data.name}; leave it out"):
            data.spec(**{name: 3})

    def test_both_sides_of_a_translation_are_alike(self) -> None:
        spec = Translate().spec(placement="peri", layers=3, width=8, heads=2, init="torch", seed=4, tied=True)
        assert spec.encoder is not None
        assert spec.sublayers == ("attn", "cross", "mlp")
        assert spec.encoder.sublayers == ("attn", "mlp")
        assert (spec.causal, spec.encoder.causal) == (True, False)
        assert (spec.tied, spec.encoder.tied) == (True, False)
        for name in ("placement", "layers", "width", "heads", "init", "seed", "vocab", "context", "positions"):
            assert getattr(spec.encoder, name) == getattr(spec, name), name

    @pytest.mark.parametrize("name", ["deepnorm", "deepnorm-decoder", "deepnorm-encoder"])
    def test_a_placement_with_two_sides_has_each_on_its_own(self, name: str) -> None:
        spec = Translate().spec(placement=name, init="paper")
        assert spec.encoder is not None
        assert (spec.encoder.placed.name, spec.placed.name) == ("deepnorm-encoder", "deepnorm-decoder")

    @pytest.mark.parametrize(
        ("words", "decoder", "encoder"),
        [
            (("attn", "moe"), ("attn", "cross", "moe"), ("attn", "moe")),
            (("mlp",), ("cross", "mlp"), ("mlp",)),
            (("attn", "mlp", "cross"), ("attn", "mlp", "cross"), ("attn", "mlp")),
        ],
    )
    def test_the_decoder_looks_at_the_source_after_itself(
        self, words: tuple[str, ...], decoder: tuple[str, ...], encoder: tuple[str, ...]
    ) -> None:
        experts = {"experts": 4} if "moe" in words else {}
        spec = Translate().spec(sublayers=words, **experts)
        assert spec.encoder is not None
        assert (spec.sublayers, spec.encoder.sublayers) == (decoder, encoder)

    def test_a_formula_of_a_layer_comes_with_the_other_side(self) -> None:
        layer = "x = x + attn(norm(x)); x = x + cross(norm(x)); x = x + mlp(norm(x))"
        spec = Translate().spec(placement=layer, width=8, heads=2, encoder=small("post"))
        assert spec.encoder is not None
        assert (spec.encoder.vocab, spec.encoder.context, spec.encoder.positions) == (22, 9, "learned")
        assert spec.encoder.placed.name == "post"

    @pytest.mark.negative
    def test_without_it_a_formula_of_a_layer_is_refused(self) -> None:
        with pytest.raises(ValueError, match="describes a whole layer, and translate needs one for each side"):
            Translate().spec(placement="x = x + attn(norm(x)); x = x + cross(norm(x)); x = x + mlp(norm(x))")


@pytest.mark.parametrize("context", [1, 5, None])
def test_the_context_is_the_tokens_that_a_model_sees(context: int | None) -> None:
    assert task("text", context=context).context == (context or 32)
    assert task("copy", context=context).context == (context or 8)
    assert next(task("text", context=context).batches(0, 2)).inputs.shape == (2, context or 32)
