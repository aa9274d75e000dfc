"""Races that people run for a reason: reports of trouble from public threads, and what a race of them must say."""

import math
from pathlib import Path

import pytest
import torch
from torch import nn

import normula as nm
from normula.cli import main
from normula.race import Grid, Job, Limits, run, run_all
from normula.record import Race, Trial, from_json, to_json
from normula.report.race_ranking import RANKING
from tests.race.answers import answered, said
from tests.race.inline import TINY, Inline, untimed

RATE, WARMUP, STEPS = 2e-3, 30, 60
"""A rate at which 18 layers of Post-LN from Xavier weights get stuck, and a warmup with which they do not."""

Printed = pytest.CaptureFixture[str]


def command(*words: str) -> int:
    """The smallest race from the command line, in this process."""
    small = ("--depth", "1", "--width", "8", "--batch", "4", "--task", "copy", "--steps", "8", "--workers", "1")
    return main(["race", *words, *small])


def copy_race(*init: str) -> Grid:
    depth, warmup = (6, 18), (0, WARMUP)
    fields = dict(depth=depth, warmup=warmup, lr=RATE, init=init, steps=STEPS, seeds=2)
    return Grid(placements=("pre", "post"), task="copy", **fields)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def made() -> dict[str, Trial]:
    """The runs of the copy race from two kinds of initial weights."""
    entries = copy_race("xavier_qkv", "torch").entries
    return {trial.identity: trial for _, trial in run_all([Job(run, (one,)) for one in entries], 2)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Races run in this process, and keep their runs here."""
    monkeypatch.setattr(Limits, "opened", lambda limits, grid: Inline())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def of(grid: Grid, made: dict[str, Trial]) -> Race:
    return answered(grid, [made[entry.identity] for entry in grid.entries])


# ---- a deep Post-LN stack without warmup does not train: pytorch/pytorch 55270, lucidrains/vit-pytorch 56


def test_a_deep_post_stack_needs_warmup_and_a_shallow_one_does_not(made: dict[str, Trial]) -> None:
    shallow, deep = said(of(copy_race("xavier_qkv"), made), "headline")
    assert shallow == "Depth 6: no difference is shown."
    assert deep.startswith("Depth 18: Post-LN needs warmup; Pre-LN does not.")


def test_from_smaller_weights_it_does_not_need_it(made: dict[str, Trial]) -> None:
    assert said(of(copy_race("torch"), made), "headline") == ["No difference is shown at any depth."]


def test_then_the_weights_are_said_to_decide(made: dict[str, Trial]) -> None:
    race = of(copy_race("xavier_qkv", "torch"), made)
    assert said(race, "headline")[-1] == (
        "Post-LN needs warmup with Xavier weights (q, k and v as one matrix), not so with PyTorch's default weights: "
        "the initial weights decide."
    )


# ---- the paper's order in a toy, with the other order's end: harvardnlp/annotated-transformer 13


@pytest.mark.usefixtures("folder")
def test_orders_with_the_end_of_the_other_are_marked(capsys: Printed) -> None:
    assert command("pre", "post", "post, final=norm(x)", "pre, final=x") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Post-LN (final=norm(x)) is a nonstandard pair: its layers end in a norm, and a closing norm follows" in text
    assert (
        "Pre-LN (final=x) is a nonstandard pair: its layers do not end in a norm, and no closing norm follows" in text
    )
    assert text.count("nonstandard pair") == 2


# ---- a rate of its own for each contestant: tbachlechner/ReZero-examples 4


@pytest.mark.negative
@pytest.mark.usefixtures("folder")
def test_a_rate_of_its_own_is_refused_before_anything_is_run(capsys: Printed) -> None:
    assert command("pre, lr=1e-2", "rezero, lr=4e-2") == 2
    assert "pre, lr=1e-2 has a learning rate of its own" in capsys.readouterr().err
    assert not list(Path().iterdir())
    assert command("pre, lr=1e-2", "rezero, lr=4e-2", "--allow-unequal") == 0
    assert "a learning rate of its own; not all were tried at the same" in " ".join(capsys.readouterr().out.split())


def test_the_best_rate_of_each_is_told_and_one_on_the_edge_is_pointed_out(folder: Path) -> None:
    race = nm.race(**{**TINY, "lr": (1e-4, 1e-3, 1e-2)})
    losses = {(cell.name, cell.lr): cell.loss.value for cell in race.cells}
    for row in race.standings:
        rates = {lr: loss for (name, lr), loss in losses.items() if name == row.name}
        assert rates[row.lr] == min(rates.values())
        edge = {1e-4: ("lowest rate",), 1e-2: ("highest rate",)}.get(row.lr, ())
        assert row.edges == edge
        assert (
            any("tried" in text and "a better one may lie beyond" in text for text in said(race, "caution")) or not edge
        )


# ---- budgets that are not equal: wandb/senpai 3251


@pytest.mark.usefixtures("folder")
def test_the_table_has_the_updates_and_the_seconds_that_each_got(capsys: Printed) -> None:
    assert command("pre", "post", "--json") == 0
    rows = from_json(Race, capsys.readouterr().out).standings
    assert [row.steps for row in rows] == [8, 8]
    assert all(row.seconds > 0 for row in rows)
    assert {"steps", "seconds"} <= {*RANKING}


@pytest.mark.usefixtures("folder")
def test_where_time_is_limited_all_are_compared_at_the_same_update() -> None:
    """The one that is cheaper in time gets further, and that must not help it."""
    race = nm.race(**{**TINY, "placements": ("pre", "x + f(x)"), "lr": 1e-3, "steps": 100_000}, max_seconds=0.3)
    lengths = [len(trial.curve) for trial in race.trials]
    assert {trial.outcome for trial in race.trials} == {"dropped"}
    assert [row.at for row in race.standings] == [min(lengths)] * 2
    assert not any(row.held_out for row in race.standings)
    curves = {trial.name: trial.curve for trial in race.trials}
    for row in race.standings:
        last = math.fsum(curves[row.name][min(lengths) - 10 : min(lengths)]) / 10
        assert row.loss.value == pytest.approx(min(last, curves[row.name][0]))
    assert any(f"at update {min(lengths)} of 100000" in text for text in said(race, "caution"))


# ---- the shape of the schedule decides: LiyuanLucasLiu/Transformer-Clinic 16


def test_a_race_is_made_again_from_its_record_to_the_last_bit(folder: Path) -> None:
    settings = dict(shape="linear", warmup=2, beta2=0.98, clip=0.5, optimiser="adamw", init="normal", weight_decay=0.1)
    first = from_json(Race, to_json(nm.race(**TINY, **settings)))
    for name, value in settings.items():
        assert first.grid[name] in (value, [value])
    assert {"beta1", "dtype", "steps", "batch"} <= {*first.grid}
    again = [run(entry) for entry in Grid.from_dict(first.grid).entries]
    assert [untimed(one) for one in again] == [untimed(one) for one in first.trials]


def test_another_shape_is_another_result(folder: Path) -> None:
    linear, constant = (nm.race(**TINY, shape=shape).trials for shape in ("linear", "constant"))
    assert all(one.loss != other.loss for one, other in zip(linear, constant, strict=True))
    assert not {one.identity for one in linear} & {one.identity for one in constant}


# ---- the corrected model is not better for that: dmlc/gluon-nlp 1488


@pytest.mark.usefixtures("folder")
def test_a_mended_skip_is_not_said_to_be_better_where_it_is_not(capsys: Printed) -> None:
    words = ("--lanes", "pre,normalized-residual", "--depth", "2", "--init", "default", "--seeds", "3", "--steps", "30")
    assert main(["race", *words, "--task", "copy", "--json"]) == 0
    race = from_json(Race, capsys.readouterr().out)
    (gap,) = race.differences
    assert gap.gap.low <= 0 <= gap.gap.high or gap.gap.high < 0.02
    assert said(race, "headline") == ["No difference is shown."]
    assert not race.nonstandard


# ---- an RMS norm in place of a layer norm gives NaN at once: wandb/senpai 3032


def test_inputs_with_a_large_mean_are_told_of_before_the_norm_is_swapped() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, 2, nn.LayerNorm(16), enable_nested_tensor=False)
    x = 10 + torch.randn(4, 6, 16)
    ratio = (x.mean(-1).abs() / x.std(-1, correction=0)).max().item()
    norms = {one.path: one.offset for one in nm.flow(model, x, seeds=1).norms}
    assert norms["layers.0.norm1"] == pytest.approx(ratio, rel=1e-5)
    assert len(norms) == 5
    assert min(norms["layers.1.norm1"], norms["norm"]) > 5  # the skip carries the mean on


def test_both_kinds_of_norm_are_raced_side_by_side(folder: Path) -> None:
    race = nm.race(**{**TINY, "placements": "pre", "lr": 1e-3}, norm=("layernorm", "rmsnorm"))
    assert [(row.facet.norm, row.outcomes) for row in race.standings] == [
        ("layernorm", {race.trials[0].outcome: 1}),
        ("rmsnorm", {race.trials[1].outcome: 1}),
    ]
    assert race.trials[0].loss != race.trials[1].loss
