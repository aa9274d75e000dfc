"""What the passes show, said in words: only what was measured, with the numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

from normula.flow.growth import growth
from normula.record import Finding, Pass, StepFlow
from normula.spec import Spec

NULL = 1e-3
"""A last norm that lets less than this share of the gradient through leaves rounding, not a measurement."""

NARROW_NULL = 0.1
"""The same over one or two features, where epsilon moves tokens that are near to constant."""

COLLAPSED = 1 - 1e-5
"""Tokens whose mean cosine is above this are one token: what is left of their difference is near rounding."""

ALIKE = 0.995
"""Tokens whose mean cosine is above this are alike: 1.00 to two places."""

BY_DESIGN = "a gain that starts at 0 does this by design, and it passes after the first update"

MOSTLY = 0.5
"""A branch of which bfloat16 loses a larger share than this is worth a note."""

HALF_LARGEST = 65504.0
"""Largest number of float16."""


def findings(passes: Sequence[Pass], spec: Spec, probe: str, last: int = 0) -> tuple[Finding, ...]:
    """All that the passes show, what makes the measurement void first; `last` is the last step asked for."""
    if not passes:
        return ()
    first = min(one.training_step for one in passes)
    start = [one for one in passes if one.training_step == first]
    found: list[Finding] = []
    found += _void(start, spec.width, probe)
    found += _not_finite(passes, first)
    found += _ended(passes, last)
    void = any(finding.weight == "void" for finding in found)
    found += _collapse(passes, _ends_centred(spec))
    if not void:
        found += _gradient(start)
        found += _dead(start, "initialisation", BY_DESIGN) if first == 0 else ()
    found += _growth(start)
    found += [*_overflow(passes), *_swallowed(start)]
    if not void and last == 0:
        text = "Initialisation alone does not say whether a stack trains: look at the first training steps as well."
        found.append(Finding(kind="initialisation-only", weight="note", text=text))
    return in_order(found)


def as_it_is(
    passes: Sequence[Pass], width: int, probe: str, *, whole: bool, centred: bool = False
) -> tuple[Finding, ...]:
    """All that passes over a model at its current weights show.

    Args:
        passes: over the model.
        width: of its stream.
        probe: as in the passes.
        whole: whether they show every step of its stream.
        centred: whether all that reads the stream after its last step takes off each token's mean.
    """
    if not any(one.steps for one in passes):
        return ()
    when = "the weights that it has"
    found: list[Finding] = [*_void(passes, width, probe), *_not_finite(passes, 0), *_collapse(passes, centred, when)]
    if not any(finding.weight == "void" for finding in found):
        found += _gradient(passes, when)
        found += _dead(passes, when, "what is measured does not depend on it here, or it is frozen")
    found += _growth(passes) if whole else ()
    found += [*_overflow(passes), *_swallowed(passes)]
    return in_order(found)


def in_order(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """What makes a measurement void first, notes last."""
    order = ("void", "warning", "note")
    return tuple(sorted(found, key=lambda finding: order.index(finding.weight)))


def _void(start: Sequence[Pass], width: int, probe: str) -> Iterable[Finding]:
    shares = [one.norm_passes for one in start if not math.isnan(one.norm_passes)]
    if not shares or max(shares) >= (NARROW_NULL if width <= 2 else NULL):
        return
    passes = f"it lets {max(shares):.0e} of the gradient through"
    if width <= 2:
        features = f"{width} feature{'s' if width > 1 else ''}"
        why, cure = f"a norm over {features} has an output that cannot move, and {passes}", "Use a larger width."
    else:
        why = (
            f"the probe {probe!r} lies in the null space of the last norm, whose output cannot move that way: {passes}"
        )
        cure = "Use the probe 'random' or 'loss'."
    yield Finding(
        kind="void-probe",
        weight="void",
        text=f"Void: {why}. The gradients below it are rounding errors, at any depth; they say nothing of vanishing. "
        + cure,
    )


def _not_finite(passes: Sequence[Pass], first: int) -> Iterable[Finding]:
    for one in passes:
        for step in one.steps:
            if not math.isfinite(step.rms_after):
                input_bad = not math.isfinite(step.rms_before)
                where = "the input already" if input_bad else f"layer {step.layer}, {step.name}"
                yield Finding(
                    kind="not-finite",
                    weight="void" if input_bad and one.training_step == first else "warning",
                    text=f"The stream is not finite (seed {one.seed}, training step {one.training_step}); "
                    f"the first such value: {where}.",
                )
                return


def _ended(passes: Sequence[Pass], last: int) -> Iterable[Finding]:
    """Training that stopped before the last step asked for, which it does when a loss is not finite."""
    reached = {seed: max(one.training_step for one in passes if one.seed == seed) for seed in _seeds(passes)}
    short = {seed: step for seed, step in reached.items() if step < last}
    if short:
        seeds = ", ".join(map(str, short))
        yield Finding(
            kind="training-ended",
            weight="warning",
            text=f"Training ended before step {last} with seed {seeds}, because the loss was not finite; "
            f"the last pass is of step {min(short.values())}.",
        )


def _seeds(passes: Sequence[Pass]) -> list[int]:
    return list(dict.fromkeys(one.seed for one in passes))


def _ends_centred(spec: Spec) -> bool:
    """Whether the last that a stack does to its stream is a LayerNorm of it."""
    return spec.norm == "layernorm" and str(spec.placed.final) == "norm(x)"


def _collapse(passes: Sequence[Pass], centred: bool, when: str = "") -> Iterable[Finding]:
    """The first training step at which the tokens are one token, and what became of the gradient.

    A mean that is taken off before anything reads them is no likeness of tokens.
    """
    steps = sorted({one.training_step for one in passes})
    cosines = {step: _mean(passes, step, lambda one: _likeness(one.steps[-1], centred)) for step in steps}
    collapsed = [step for step in steps if cosines[step] >= COLLAPSED]
    if steps[0] not in collapsed and cosines[steps[0]] >= ALIKE:
        yield Finding(
            kind="tokens-alike",
            weight="warning",
            text=f"At {when or _when(steps[0])} the tokens are alike after the last layer: "
            f"mean cosine {cosines[steps[0]]:.4f}.",
        )
    if not collapsed:
        return
    first = collapsed[0]
    rise = "" if first == steps[0] else f", from {cosines[steps[0]]:.4f} at step {steps[0]}"
    yield Finding(
        kind="token-collapse",
        weight="warning",
        text=f"Representation collapse: at {when or f'training step {first}'} the mean cosine between tokens after "
        f"the last layer has reached 1{rise}; they differ by less than {1 - COLLAPSED:.0e}.",
    )
    later = [step for step in steps if step > first]
    before, after = (_mean(passes, step, lambda one: one.input_gradient) for step in (steps[0], (later or [first])[-1]))
    if later and after < before / 10:
        yield Finding(
            kind="gradient-after-collapse",
            weight="warning",
            text=f"The gradient vanished afterwards, as a consequence: at the input it is {before:.1e} at step "
            f"{steps[0]} and {after:.1e} at step {later[-1]}.",
        )


def _likeness(step: StepFlow, centred: bool) -> float:
    return step.token_cosine if not centred or math.isnan(step.centred_cosine) else step.centred_cosine


def _when(step: int) -> str:
    return "initialisation" if step == 0 else f"training step {step}"


def _gradient(start: Sequence[Pass], when: str = "") -> Iterable[Finding]:
    through = _mean(
        start, None, lambda one: one.input_gradient / one.output_gradient if one.output_gradient else math.nan
    )
    skip = _mean(start, None, lambda one: one.skip_gradient / one.output_gradient if one.output_gradient else math.nan)
    if math.isnan(through):
        return
    if not 1e-3 < through < 1e3:
        word = "vanishes" if through < 1 else "explodes"
        yield Finding(
            kind=f"gradient-{word}",
            weight="warning",
            text=f"The gradient {word} at {when or _when(start[0].training_step)}: {through:.1e} of it arrives at the "
            "input.",
        )
    alone = (
        "what the skip path alone carries is not known"
        if math.isnan(skip)
        else f"the skip path alone carries {skip:.2g}"
    )
    text = f"Of a gradient of 1 at the output, {through:.2g} arrives at the input; {alone}."
    yield Finding(kind="skip-path", weight="note", text=text)


def _dead(start: Sequence[Pass], when: str, why: str) -> Iterable[Finding]:
    names = [weight.name for weight in start[0].weights]
    dead = [name for place, name in enumerate(names) if all(one.weights[place].gradient == 0.0 for one in start)]
    if dead:
        yield Finding(
            kind="no-gradient",
            weight="note",
            text=f"{len(dead)} of {len(names)} parameters have a gradient of exactly 0 at {when}, such as "
            f"{dead[0]}; {why}.",
        )


def _growth(start: Sequence[Pass]) -> Iterable[Finding]:
    law = growth(start)
    if law is None:
        return
    first, last = (_mean(start, None, lambda one, i=i: one.steps[i].rms_after) for i in (0, -1))  # type: ignore[misc]
    n = len(start[0].steps)
    base = f"(n + {law.offset})" if law.offset else "n"
    how = {
        "flat": "keeps its size",
        "power": f"grows as {base}**{law.exponent:.2f} with the number of steps n",
        "exponential": f"grows by a factor {math.exp(law.exponent):.2f} at each step",
    }[law.kind]
    text = f"The stream {how}: RMS {first:.2f} after the first step, {last:.2f} after all {n} (R2 {law.r2:.2f})."
    yield Finding(kind="growth", weight="note", text=text)


def _overflow(passes: Sequence[Pass]) -> Iterable[Finding]:
    largest, step = max(((s.largest, s) for one in passes for s in one.steps), key=lambda pair: pair[0])
    if math.isfinite(largest) and largest > HALF_LARGEST / 16:
        yield Finding(
            kind="half-precision",
            weight="warning",
            text=f"The stream reaches {largest:.0f} at layer {step.layer}, {step.name}: "
            f"{largest / HALF_LARGEST:.0%} of the largest float16.",
        )


def _swallowed(passes: Sequence[Pass]) -> Iterable[Finding]:
    """Steps whose branch a stream in bfloat16 would mostly lose: what was measured, not what becomes of a training."""
    shares = [_mean(passes, None, lambda one, at=at: one.steps[at].swallowed) for at in range(len(passes[0].steps))]  # type: ignore[misc]
    lost = [at for at, share in enumerate(shares) if share > MOSTLY]
    if lost:
        worst = max(lost, key=lambda at: shares[at])
        step = passes[0].steps[worst]
        yield Finding(
            kind="bfloat16-rounding",
            weight="note",
            text=f"In a stream of bfloat16, {shares[worst]:.0%} of what layer {step.layer}, {step.name} adds would be "
            f"rounded away: it is less than half of the stream's spacing. So it is at {len(lost)} of {len(shares)} "
            "steps; a stream in float32 keeps it.",
        )


def _mean(passes: Sequence[Pass], step: int | None, value: Callable[[Pass], float]) -> float:
    """Mean over the seeds of one training step (None: over all passes)."""
    values = [value(one) for one in passes if step is None or one.training_step == step]
    return fmean(values) if values else math.nan
