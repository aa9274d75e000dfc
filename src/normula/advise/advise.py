"""The verb: which placement for a situation, with the evidence that there is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from normula.advise.own import with_race, with_reading
from normula.advise.rules import BASE, Rule, Source, rules
from normula.advise.situation import Situation
from normula.catalog import entry, names_of
from normula.formula import Placement
from normula.record import Advice, Choice, Evidence, Practice, Race
from normula.record.advice import Strength
from normula.record.reading import Reading

Ledger = Mapping[str, tuple[str, str]]
"""Of each claim its statement and the verdict on record."""

UNTRIED = "None of this is about your data: race the first choices on them (normula race), and ask again with the race."

MOST = 4
"""Alternatives that are told; who must choose among many has not been advised."""


def advise(
    situation: Situation | None = None,
    *,
    race: Race | None = None,
    reading: Reading | None = None,
    ledger: Ledger | None = None,
    **fields: Any,
) -> Advice:
    """Which placement to take in a situation: one first choice, alternatives, what to leave, and the evidence for each.

        >>> advise(depth=48, task="language", precision="bf16").first.placement
        'gpt2'
        >>> advise(pretrained=True, base="post").first.placement
        'post'

    The same situation gives the same advice: it comes from a table of rules.

    Args:
        situation: what is known; or give its fields by name, as `Situation` has them.
        race: the user's own, which outweighs the table where it shows a difference.
        reading: of the model whose weights are to be trained on; its formula is then the base.
        ledger: statements and recorded verdicts of claims by name; without it claims are named alone.

    Raises:
        ValueError: a field that cannot be, or a reading of which no formula is known.
    """
    if situation is not None and fields:
        raise ValueError(f"give a situation or fields, not both: {', '.join(fields)}")
    known = Situation(**fields) if situation is None else situation
    if reading is not None:
        known = with_reading(known, reading)
    found = _by_rules(known, ledger or {})
    if race is not None:
        return with_race(found, race, known)
    return found if known.pretrained else replace(found, cautions=(*found.cautions, UNTRIED))


def _by_rules(situation: Situation, ledger: Ledger) -> Advice:
    held = [rule for rule in rules().rules if rule.holds(situation)]
    firsts = sorted((rule for rule in held if rule.says == "first"), key=lambda rule: -rule.rank)
    left = [rule for rule in held if rule.says == "avoid"]
    first = _choice(firsts[0], situation, ledger)
    beside = sorted((rule for rule in held if rule.says == "alternative"), key=lambda rule: -rule.rank)
    taken = [first.placement, *(rule.placement for rule in left)]
    alternatives: list[Choice] = []
    for rule in (*firsts[1:], *beside):
        if len(alternatives) < MOST and not any(_same(rule.placement, other) for other in taken):
            taken.append(rule.placement)
            alternatives.append(_choice(rule, situation, ledger))
    avoid = tuple(_choice(rule, situation, ledger) for rule in left if rule.placement != first.placement)
    return Advice(
        situation=situation.said,
        first=first,
        alternatives=tuple(alternatives),
        avoid=avoid,
        practices=tuple(
            Practice(text=rule.text, evidence=_evidence(rule, ledger)) for rule in held if rule.says == "do"
        ),
        cautions=tuple(_cautions(situation, (first, *alternatives))),
    )


@cache
def _same(first: str, second: str) -> bool:
    """Whether two placements of the rules compute the same, whatever weights they start from."""
    if BASE in (first, second):
        return first == second
    return entry(first).placement.computes_as(entry(second).placement)


def _choice(rule: Rule, situation: Situation, ledger: Ledger) -> Choice:
    title, formula, cost, name = "what it was trained with", "", "nothing: it is what the weights have", rule.placement
    if rule.placement != BASE:
        known = entry(rule.placement)
        title, formula, cost = known.title, str(known.placement.formula), known.cost
    elif isinstance(situation.base, Placement):
        name, formula = situation.base.name, str(situation.base.formula)
        titles = [one.title for one in names_of(situation.base.formula) if one.placement.computes_as(situation.base)]
        title = titles[0] if titles else name
    evidence = _evidence(rule, ledger)
    return Choice(
        placement=name,
        title=title,
        formula=formula,
        why=rule.why,
        cost="" if rule.says == "avoid" else cost,
        strength=_strength(rule, evidence),
        evidence=evidence,
    )


def _evidence(rule: Rule, ledger: Ledger) -> tuple[Evidence, ...]:
    return tuple(_piece(rules().evidence[name], ledger) for name in rule.evidence)


def _piece(source: Source, ledger: Ledger) -> Evidence:
    if source.kind != "claim":
        return Evidence(kind=source.kind, text=source.text, source=source.source, scale=source.scale)
    text = f"the claim {source.claim} of normula's ledger"
    if source.claim in ledger:
        statement, verdict = ledger[source.claim]
        text = f"{statement} On record: {verdict}."
    return Evidence(kind="claim", text=text, source=f"normula claims {source.claim}", scale=source.scale)


def _strength(rule: Rule, evidence: Sequence[Evidence]) -> Strength:
    if rule.exact:
        return "exact"
    if rule.contested:
        return "contested"
    large = {one.source for one in evidence if one.scale == "large"}
    return "strong" if len(large) > 1 else "moderate" if large else "weak"


def _cautions(situation: Situation, choices: Sequence[Choice]) -> Iterable[str]:
    """How far the evidence carries."""
    first = choices[0]
    if first.strength == "weak":
        yield f"The evidence for {first.title} is from small models, algebra and reports alone."
    if first.strength == "moderate":
        yield f"The evidence for {first.title} at scale is from one source."
    if first.strength == "contested":
        yield f"Sources disagree on {first.title}; race it against the first alternative before you rely on it."
    if situation.pretrained and situation.base is None:
        yield "Which placement the weights were trained with was not said; read the model (normula read) and say it."
    if not situation.pretrained:
        missing = [name for name in ("depth", "tuning", "task") if getattr(situation, name) is None]
        if missing:
            yield f"Not said, and it may change the advice: {', '.join(missing)}."
        if situation.depth is not None and situation.depth > 100:
            yield "Of stacks of hundreds of layers there are few large runs; most of the evidence is from translation."
