"""The verdict's sentences, from trials made by hand."""

import math
from collections.abc import Sequence
from itertools import product

import pytest

from normula.compare.verdict import verdict
from normula.record import Contestant, DepthPoint, Finding, Flow, Share, Trial, environment
from tests.race.trials import trial


def contestant(name: str, title: str) -> Contestant:
    return Contestant(name=name, title=title, placement={}, skip="1", words="", svg="", predictions=())


PRE, POST, PERI = contestant("pre", "Pre-LN"), contestant("post", "Post-LN"), contestant("peri", "Peri-LN")


def said(
    trials: Sequence[Trial],
    *contestants: Contestant,
    planned: int | None = None,
    shares: Sequence[Share] = (),
    flows: Sequence[Flow] = (),
    depths: Sequence[DepthPoint] = (),
) -> dict[str, list[str]]:
    """The sentences by their kind."""
    planned = len(trials) if planned is None else planned
    found: dict[str, list[str]] = {}
    for statement in verdict(contestants or (PRE, POST), trials, planned, shares, flows, depths):
        found.setdefault(statement.kind, []).append(statement.text)
    return found


def seeds(name: str, *losses: float, **fields: object) -> list[Trial]:
    return [trial(name, loss, seed=seed, **fields) for seed, loss in enumerate(losses)]


def test_a_difference_is_shown_where_the_ranges_lie_apart() -> None:
    found = said(seeds("pre", 2.0, 2.2) + seeds("post", 2.5, 2.7))
    assert found["difference"] == [
        "With Xavier weights, each at its best rate and warmup, Pre-LN ends 0.50 nats below Post-LN: "
        "2.10 [2.00, 2.20] against 2.60 [2.50, 2.70]."
    ]


def test_the_better_one_stands_first_whatever_the_order() -> None:
    found = said(seeds("pre", 2.5, 2.7) + seeds("post", 2.0, 2.2))
    assert "Post-LN ends 0.50 nats below Pre-LN" in found["difference"][0]


@pytest.mark.negative
@pytest.mark.parametrize("post", [(2.1, 2.7), (2.2, 2.3), (2.0, 2.2)], ids=["overlap", "touching", "equal"])
def test_no_difference_is_shown_where_they_overlap(post: tuple[float, float]) -> None:
    found = said(seeds("pre", 2.0, 2.2) + seeds("post", *post))
    assert len(found["difference"]) == 1
    assert "no difference is shown between" in found["difference"][0]
    assert "below" not in found["difference"][0]


def test_one_seed_does_not_rule_out_chance() -> None:
    found = said(seeds("pre", 2.0) + seeds("post", 2.5))
    assert found["difference"][0].endswith("With one seed, chance is not ruled out.")
    assert "1 seed:" in found["caution"][-1]
    assert "chance" not in said(seeds("pre", 2.0, 2.0) + seeds("post", 2.5, 2.5))["difference"][0]


def test_each_is_compared_at_the_best_point_of_its_own_grid() -> None:
    trials = [
        *seeds("pre", 2.4, 2.4, lr=1e-3),
        *seeds("pre", 2.0, 2.2, lr=3e-3),
        *seeds("pre", 1.0, math.nan, lr=1e-2, outcome="diverged"),  # one good seed is not a good point
        *seeds("post", 2.6, 2.8, lr=1e-3, warmup=50),
        *seeds("post", 2.9, 2.9, lr=3e-3),
        *seeds("post", 3.0, 3.0, lr=1e-2),
    ]
    found = said(trials)
    assert "2.10 [2.00, 2.20] against 2.70 [2.60, 2.80]" in found["difference"][0]
    assert found["outcome"][0].endswith("best loss 2.10 [2.00, 2.20] at rate 0.003, warmup 0.")
    assert found["outcome"][1].endswith("best loss 2.70 [2.60, 2.80] at rate 0.001, warmup 50.")


def test_outcomes_are_counted_with_each_rule_of_initial_weights() -> None:
    trials = [
        *seeds("pre", 2.0, 2.1),
        *seeds("post", 3.0, math.nan, outcome="stuck"),
        trial("post", math.nan, seed=2, outcome="diverged"),
        *seeds("pre", 2.0, 2.1, init="normal"),
        *seeds("post", 2.0, 2.1, init="normal"),
    ]
    outcomes = said(trials)["outcome"]
    assert outcomes[0].startswith("Pre-LN, Xavier weights: 2 learned of 2; best loss")
    assert outcomes[1] == "Post-LN, Xavier weights: 2 stuck, 1 diverged of 3."
    assert outcomes[2].startswith("Pre-LN, normal 0.02 weights: 2 learned of 2; ")
    assert outcomes[3].startswith("Post-LN, normal 0.02 weights: 2 learned of 2; ")


def test_the_headline_names_the_initial_weights_where_they_decide() -> None:
    trials = [
        trial(name, init=init, lr=lr, outcome="stuck" if (name, init) == ("post", "xavier") else "learned")
        for name, init, lr in product(("pre", "post"), ("xavier", "normal"), (1e-3, 1e-2))
    ]
    assert said(trials)["headline"] == [
        "Post-LN does not learn with Xavier weights at any rate tried, and does with normal 0.02 weights: "
        "the initial weights decide as much as the placement.",
        "Pre-LN learns in every run.",
    ]


@pytest.mark.negative
def test_the_placement_is_not_said_to_decide_where_no_other_one_did_better() -> None:
    trials = [trial("post", init="xavier", outcome="stuck"), trial("post", init="normal")]
    assert said(trials, POST)["headline"] == [
        "Post-LN does not learn with Xavier weights at any rate tried, and does with normal 0.02 weights: "
        "the initial weights decide."
    ]


def test_who_fails_everywhere_somewhere_and_nowhere_is_told_apart() -> None:
    trials = [
        *seeds("post", 3.0, 3.0, outcome="stuck"),
        trial("pre", seed=0),
        trial("pre", seed=1, outcome="diverged"),
        *seeds("peri", 2.0, 2.0),
    ]
    assert said(trials, PRE, POST, PERI)["headline"] == [
        "Post-LN does not learn at any setting tried.",
        "Pre-LN fails in 1 of 2 runs; see where below.",
        "Peri-LN learns in every run.",
    ]
    both = said([*seeds("pre", 2.0), *seeds("post", 2.0)])
    assert both["headline"] == ["Pre-LN and Post-LN learn in every run."]


def test_where_all_runs_diverged_nothing_is_called_best() -> None:
    trials = [trial(name, math.nan, seed=s, outcome="diverged") for name in ("pre", "post") for s in (0, 1)]
    found = said(trials)
    assert found["headline"] == [f"{title} does not learn at any setting tried." for title in ("Pre-LN", "Post-LN")]
    assert found["outcome"] == [f"{title}, Xavier weights: 2 diverged of 2." for title in ("Pre-LN", "Post-LN")]
    assert "difference" not in found
    assert not any("best" in text for texts in found.values() for text in texts)


def test_a_single_placement_has_no_difference_and_a_verdict_of_its_own() -> None:
    found = said(seeds("pre", 2.0, 2.2), PRE)
    assert found["headline"] == ["Pre-LN learns in every run."]
    assert "difference" not in found
    assert found["outcome"] == [
        "Pre-LN, Xavier weights: 2 learned of 2; best loss 2.10 [2.00, 2.20] at rate 0.001, warmup 0."
    ]


def test_an_interrupt_is_said_first_and_only_what_ran_is_judged() -> None:
    found = verdict((PRE, POST), [trial("pre", 2.0)], 8, (), (), ())
    assert found[0].kind == "caution"
    assert found[0].text == "Interrupted: 1 of 8 runs were finished; what follows is from these alone."
    assert not any("Post-LN" in statement.text for statement in found)
    assert [s.text for s in found if s.kind == "headline"] == ["Pre-LN learns in every run."]


def test_after_an_interrupt_initial_weights_that_had_no_turn_are_not_judged() -> None:
    trials = [trial("pre"), trial("post", outcome="stuck"), trial("pre", init="normal")]
    found = said(trials, planned=4)
    assert found["headline"] == ["Post-LN does not learn at any setting tried.", "Pre-LN learns in every run."]
    assert not any("Post-LN, normal" in text for text in found["outcome"])


def test_an_interrupt_before_the_first_run_says_that_and_no_more() -> None:
    assert [s.text for s in verdict((PRE, POST), [], 8, (), (), ())] == [
        "Interrupted: 0 of 8 runs were finished; what follows is from these alone."
    ]


@pytest.mark.parametrize(("best", "end"), [(1e-3, "lowest"), (1e-2, "highest"), (3e-3, None)], ids=str)
def test_a_best_rate_at_the_end_of_the_grid_is_flagged(best: float, end: str | None) -> None:
    rates = (1e-3, 3e-3, 1e-2)
    found = said([trial("pre", 2.0 if lr == best else 2.5, lr=lr) for lr in rates], PRE)
    flagged = [text for text in found["caution"] if "may lie beyond" in text]
    if end is None:
        assert flagged == []
    else:
        assert flagged == [
            f"Pre-LN with Xavier weights is best at the {end} rate tried ({best:g}): a better one may lie beyond."
        ]


@pytest.mark.negative
def test_a_single_rate_has_no_end_and_what_did_not_learn_no_best_rate() -> None:
    one = said(seeds("pre", 2.0), PRE)
    stuck = said([trial("pre", 3.0, lr=lr, outcome="stuck") for lr in (1e-3, 1e-2)], PRE)
    assert not any("may lie beyond" in text for found in (one, stuck) for text in found["caution"])


@pytest.mark.parametrize(
    ("without", "warmed", "words"),
    [
        (2, 0, "Post-LN fails in 2 of 2 runs without warmup and in 0 of 2 runs with."),
        (1, 1, "Post-LN fails in 1 of 2 runs without warmup and in 1 of 2 runs with: warmup makes no difference"),
    ],
)
def test_what_warmup_did_is_counted(without: int, warmed: int, words: str) -> None:
    trials = [
        trial("post", seed=seed, warmup=warmup, outcome="stuck" if seed < failing else "learned")
        for warmup, failing in ((0, without), (50, warmed))
        for seed in (0, 1)
    ]
    trials += [trial("pre", seed=seed, warmup=warmup) for warmup in (0, 50) for seed in (0, 1)]
    factors = said(trials)["factor"]
    assert len(factors) == 1  # nothing of Pre-LN, which never fails
    assert factors[0].startswith(words)


def test_the_factor_that_decided_is_named_with_all_shares() -> None:
    def factor(*shares: tuple[tuple[str, ...], float]) -> str:
        made = [Share(factors=factors, share=share) for factors, share in shares]
        return said(seeds("pre", 2.0), PRE, shares=made)["factor"][0]

    assert factor((("initial weights",), 0.8), (("placement", "warmup"), 0.196), (("warmup",), 0.004)) == (
        "What decided most is the initial weights. Of the variance of the final losses: "
        "initial weights 80%, placement x warmup 20%."
    )
    assert "the combination of placement and initial weights." in factor((("placement", "initial weights"), 1.0))
    assert "none of the factors by itself." in factor((("all else, seeds too",), 1.0))


def flow_with(*kinds: str) -> Flow:
    findings = tuple(Finding(kind=kind, weight="warning", text=f"<{kind}>") for kind in kinds)
    here = environment("torch")
    return Flow(name="post", spec={}, probe="loss", passes=(), growth=None, findings=findings, environment=here)


def test_a_collapse_over_the_first_steps_is_part_of_the_verdict() -> None:
    flows = [flow_with("token-collapse", "growth", "gradient-after-collapse")]
    assert said(seeds("pre", 2.0), flows=flows)["flow"] == [
        "Post-LN: <token-collapse>",
        "Post-LN: <gradient-after-collapse>",
    ]


def point(depth: int, gradient: float, void: bool = False) -> DepthPoint:
    spread = (gradient, gradient, gradient)
    return DepthPoint(
        name="pre",
        init="xavier",
        width=64,
        depth=depth,
        input_gradient=spread,
        skip_gradient=(1.0, 1.0, 1.0),
        rms=spread,
        token_cosine=spread,
        void=void,
    )


def test_what_depth_does_at_initialisation_is_said_with_both_numbers() -> None:
    found = said(seeds("pre", 2.0), PRE, depths=[point(50, 2.5), point(5, 1.2)])
    assert found["flow"] == [
        "Pre-LN at initialisation: of a gradient of 1 at the output, 1.2 reaches the input at depth 5 and 2.5 at "
        "depth 50; the skip path alone carries 1 and 1."
    ]


@pytest.mark.negative
@pytest.mark.parametrize(
    "depths",
    [[point(5, 1.0)], [point(5, 1.0), point(50, 1.0, void=True)], [point(5, 1.0), point(50, math.nan)], []],
    ids=["one depth", "void", "not a number", "none"],
)
def test_nothing_is_said_of_depth_where_it_was_not_measured(depths: list[DepthPoint]) -> None:
    assert "flow" not in said(seeds("pre", 2.0), PRE, depths=depths)


def test_the_last_word_is_a_caution_with_what_stuck_means() -> None:
    found = verdict((PRE,), seeds("pre", 2.0, 2.1), 2, (), (), ())
    assert found[-1].kind == "caution"
    for words in ("2 seeds", "not which placement is better in a long run", "0.1 nats", "(3.00 nats)"):
        assert words in found[-1].text
