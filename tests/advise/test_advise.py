"""Advice: what the rules say, that their evidence exists, and what a race or a model of one's own changes."""

import itertools
from typing import Any

import pytest

import normula as nm
from normula.advise import Situation, advise, rules
from normula.advise.rules import BASE
from normula.advise.situation import WORDS
from normula.catalog import entry
from normula.claims import claim, names
from normula.record import Advice, Choice, Race, from_json, to_json
from normula.record.reading import Reading, ReadStage
from tests.race.answers import raced

SCRATCH = [
    dict(depth=depth, params=params, tuning=tuning, precision=precision, task=task)
    for depth, params, tuning, precision, task in itertools.product(
        (None, 12, 13, 24, 48, 100),
        (None, 1e9),
        (None, *WORDS["tuning"]),
        (None, "fp16"),
        (None, *WORDS["task"]),
    )
]
TRAINED = [
    dict(pretrained=True, base=base, depth=depth)
    for base, depth in itertools.product((None, "post", "pre", "peri", "x + f(norm(norm(x)))"), (None, 6, 100))
]


def choices(found: Advice) -> tuple[Choice, ...]:
    return (found.first, *found.alternatives, *found.avoid)


@pytest.mark.parametrize("base", ["post", "pre", "deepnorm", "olmo2"])
def test_trained_weights_keep_their_placement(base: str) -> None:
    found = advise(pretrained=True, base=base)
    assert found.first.placement == base
    assert found.first.strength == "exact"


def test_of_weights_whose_placement_is_not_known_it_says_to_read_it() -> None:
    found = advise(pretrained=True)
    assert found.first.placement == BASE
    assert any("normula read" in text for text in found.cautions)


def test_fine_tuning_post_ln_is_told_of_its_warmup_and_not_to_switch() -> None:
    found = advise(pretrained=True, base="post", depth=12)
    assert [one.placement for one in found.avoid] == ["pre"]
    assert any(practice.text.startswith("Warm up") for practice in found.practices)


def test_fine_tuning_pre_ln_needs_no_word_of_warmup() -> None:
    found = advise(pretrained=True, base="pre", depth=12)
    assert [one.placement for one in found.avoid] == ["post"]
    assert not any(practice.text.startswith("Warm up") for practice in found.practices)


@pytest.mark.parametrize(
    ("situation", "first"),
    [
        (dict(), "pre"),
        (dict(task="language", depth=12), "gpt2"),
        (dict(task="language", depth=32, params=7e9, tuning="none"), "peri"),
        (dict(task="language", depth=32, params=7e9, tuning="much"), "gpt2"),
        (dict(depth=32, precision="fp16"), "peri"),
        (dict(depth=32, precision="bf16"), "pre"),
        (dict(task="vision", depth=12), "pre"),
        (dict(task="vision", depth=36), "layerscale"),
        (dict(depth=200, tuning="some"), "deepnorm"),
        (dict(depth=200, tuning="none"), "depth-scaled-sandwich"),
    ],
)
def test_the_first_choice_goes_with_the_situation(situation: dict[str, Any], first: str) -> None:
    assert advise(**situation).first.placement == first


def test_post_ln_is_left_where_it_is_deep_and_an_alternative_where_it_is_shallow_and_tuned() -> None:
    deep, shallow = advise(depth=48, tuning="much"), advise(depth=6, tuning="much")
    assert "post" in [one.placement for one in deep.avoid]
    assert "post" in [one.placement for one in shallow.alternatives]
    assert "post" in [one.placement for one in advise(depth=6, tuning="none").avoid]


@pytest.mark.property
def test_every_situation_has_one_first_choice_and_no_placement_both_taken_and_left() -> None:
    for fields in SCRATCH + TRAINED:
        found = advise(**fields)
        of = [one.placement for one in choices(found)]
        assert len(set(of)) == len(of), fields
        assert all(one.evidence for one in choices(found)), fields
        assert all(one.cost for one in (found.first, *found.alternatives)), fields
        assert advise(**fields) == found


@pytest.mark.property
def test_every_rule_holds_somewhere_and_its_evidence_is_there() -> None:
    situations = [Situation(**fields) for fields in SCRATCH + TRAINED]
    for rule in rules().rules:
        assert any(rule.holds(one) for one in situations), rule.name
        assert rule.evidence, rule.name
        assert set(rule.evidence) <= set(rules().evidence), rule.name
        assert rule.text if rule.says == "do" else rule.why, rule.name
        if rule.placement and rule.placement != BASE:
            assert entry(rule.placement).name == rule.placement


def test_no_evidence_lies_unused() -> None:
    assert {name for rule in rules().rules for name in rule.evidence} == set(rules().evidence)


def test_names_of_rules_are_their_own() -> None:
    found = [rule.name for rule in rules().rules]
    assert len(set(found)) == len(found)


def test_claims_that_are_named_stand_in_the_ledger_and_do_not_say_the_opposite() -> None:
    """Evidence that does not hold would be no evidence."""
    named = [one.claim for one in rules().evidence.values() if one.kind == "claim"]
    assert named
    for name in named:
        assert name in names()
        assert claim(name).recorded in ("holds", "holds in part")


def test_evidence_says_who_found_it() -> None:
    for name, one in rules().evidence.items():
        assert bool(one.claim) == (one.kind == "claim"), name
        assert one.claim or (one.text.endswith(".") and one.source), name


def test_the_ledgers_statement_and_verdict_stand_with_a_claim() -> None:
    found = advise(pretrained=True, base="post", ledger={"same-parameters-other-function": ("So it is.", "holds")})
    assert "So it is. On record: holds." in [one.text for one in found.first.evidence]


def test_evidence_from_one_source_is_said_to_be_that() -> None:
    found = advise(task="vision", depth=36)
    assert found.first.strength in ("moderate", "strong")
    weak = next(one for one in advise().avoid if one.placement == "pre-no-final")
    assert weak.strength == "weak"
    assert not any(one.scale == "large" for one in weak.evidence)


def test_where_sources_disagree_it_says_so() -> None:
    found = advise(depth=200, tuning="some")
    assert found.first.strength == "contested"
    assert any("Sources disagree" in text for text in found.cautions)


def test_what_was_not_said_is_asked_for() -> None:
    assert any("depth, tuning, task" in text for text in advise().cautions)
    assert not any("Not said" in text for text in advise(depth=6, tuning="none", task="language").cautions)


def test_advice_goes_through_json() -> None:
    found = advise(depth=48, task="language")
    assert from_json(Advice, to_json(found)) == found


# ------------------------------------------------------------------------------------------------------- one's own race


def race_of(**losses: float) -> Race:
    return raced(lambda entry: losses[entry.name or ""], *losses, depth=(2, 12))


def test_a_race_that_shows_another_first_outweighs_the_rules() -> None:
    found = advise(depth=12, race=race_of(pre=1.5, peri=1.0))
    assert (found.first.placement, found.first.strength) == ("peri", "own")
    assert found.alternatives[0].placement == "pre"
    assert any("Your race puts Peri-LN before Pre-LN" in text for text in found.cautions)


def test_a_race_that_shows_no_difference_changes_nothing_and_is_told() -> None:
    found = advise(depth=12, race=race_of(pre=1.0, peri=0.99))
    assert found.first.placement == "pre"
    assert any("no difference to the others is shown" in one.text for one in found.first.evidence)


def test_the_race_is_read_at_the_depth_that_is_nearest() -> None:
    found = advise(depth=10, race=race_of(pre=1.0, post=2.0))
    assert "At depth 12, width 32, copy" in found.first.evidence[-1].text
    assert "shown to be better than Post-LN" in found.first.evidence[-1].text


def test_a_race_far_from_the_depth_asked_about_is_said_to_be_far() -> None:
    assert any("near that would say more" in text for text in advise(depth=96, race=race_of(pre=1.0)).cautions)
    assert not any("near that" in text for text in advise(depth=12, race=race_of(pre=1.0)).cautions)


def test_weights_do_not_enter_where_a_race_is_matched() -> None:
    """The rules take GPT-2's start, the race had Pre-LN: the same placement."""
    found = advise(depth=12, task="language", race=race_of(pre=1.0, post=2.0))
    assert found.first.placement == "gpt2"
    assert found.first.evidence[-1].scale == "own"


def test_a_race_without_the_first_choice_says_nothing_of_it() -> None:
    found = advise(depth=12, race=race_of(post=1.0, deepnorm=2.0))
    assert found.first.placement == "pre"
    assert any("Pre-LN was not in your race" in text for text in found.cautions)


def test_a_race_does_not_take_trained_weights_from_their_placement() -> None:
    found = advise(pretrained=True, base="post", depth=12, race=race_of(post=2.0, pre=1.0))
    assert found.first.placement == "post"


def test_a_placement_that_won_is_not_left() -> None:
    found = advise(depth=14, tuning="much", race=race_of(pre=2.0, post=1.0))
    assert found.first.placement == "post"
    assert "post" not in [one.placement for one in (*found.alternatives, *found.avoid)]


# ------------------------------------------------------------------------------------------------------ one's own model


def reading_of(block: str, layers: int = 12) -> Reading:
    return Reading(
        stages=(ReadStage(where="layers", layers=layers, block=block),),
        embed_norms=(False,),
        final_norms=(False,),
        norm="layernorm",
        eps=1e-5,
        inner=(),
        norms=(),
        sublayers=(),
        findings=(),
    )


def test_a_model_that_was_read_is_its_base() -> None:
    found = advise(reading=reading_of("x = norm(x + attn(x)); x = norm(x + mlp(x))"))
    assert found.first.placement == "post"
    assert found.situation == {"depth": 12, "pretrained": True, "base": "post"}


def test_a_model_with_a_formula_of_its_own_keeps_it() -> None:
    found = advise(reading=reading_of("x = x + attn(norm(x))/3; x = x + mlp(norm(x))/3"))
    assert found.first.formula == "x = x + 1/3 * attn(norm(x)); x = x + 1/3 * mlp(norm(x))"


@pytest.mark.negative
def test_a_model_of_which_no_formula_is_known_gives_no_advice() -> None:
    with pytest.raises(ValueError, match="no formula was found"):
        advise(reading=reading_of("unknown"))


@pytest.mark.negative
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dict(depth=0), "depth is a whole number of at least 1"),
        (dict(depth=True), "depth is a whole number"),
        (dict(width=-3), "width is a whole number"),
        (dict(params=float("nan")), "params is a number of parameters"),
        (dict(tuning="lots"), "tuning is one of none, some, much"),
        (dict(precision="fp8"), "precision is one of"),
        (dict(task="langauge"), "language"),
        (dict(base="post"), "say that they are pretrained"),
        (dict(pretrained=True, base="posst"), "no placement is called 'posst'"),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        advise(**fields)


@pytest.mark.negative
def test_a_situation_and_fields_do_not_go_together() -> None:
    with pytest.raises(ValueError, match="not both"):
        advise(Situation(depth=3), width=3)


def test_it_is_a_name_of_the_package() -> None:
    assert nm.advise(depth=3).first.placement == "pre"
