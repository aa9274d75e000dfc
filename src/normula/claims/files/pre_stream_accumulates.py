"""The stream of Pre-LN grows with depth, and what a final norm does about it."""

from __future__ import annotations

from math import log

from normula.claims.claim import Claim, Measured
from normula.claims.probe import BLOCKS, VOCABULARY, language, start
from normula.claims.schemes import place
from normula.record import Figure, Series

UNIFORM = log(VOCABULARY)
"""Loss in nats of a model that prefers no symbol."""


def measure() -> Measured:
    """The variance of the stream, and the first loss with a final norm and without."""
    closed, raw = (
        {depth: start(language(place("pre", "x + f(norm(x))", final), depth)) for depth in BLOCKS}
        for final in ("norm(x)", "x")
    )
    variances = {depth: closed[depth].variances[-1] for depth in BLOCKS}
    deepest = closed[BLOCKS[-1]].variances
    grows = all(1 + depth / 2 <= variance <= 1 + 3 * depth / 2 for depth, variance in variances.items())
    losses = {"norm(x)": closed[BLOCKS[-1]].loss, "x": raw[BLOCKS[-1]].loss}
    needed = losses["norm(x)"] < UNIFORM + 1 and losses["x"] > 2 * UNIFORM
    figures = [
        Figure(
            label=f"variance of the stream after {depth} blocks",
            value=variance,
            expected=f"{1 + depth / 2:g} to {1 + 3 * depth / 2:g}",
        )
        for depth, variance in reversed(variances.items())
    ]
    figures += [
        Figure(label=f"first loss at {BLOCKS[-1]} blocks, final norm", value=losses["norm(x)"], expected="about 6"),
        Figure(label=f"first loss at {BLOCKS[-1]} blocks, no final norm", value=losses["x"]),
    ]
    return Measured(
        verdict="holds" if grows and needed else "holds in part" if grows else "does not hold here",
        figures=tuple(figures),
        text=f"The variance grows about linearly, to {deepest[-1]:.0f} at {BLOCKS[-1]} blocks. Read out as it is, "
        f"such a stream starts at a loss of {losses['x']:.1f} nats; behind a final norm at {losses['norm(x)']:.2f}, "
        f"where knowing nothing costs {UNIFORM:.2f} and random logits of variance 1 half a nat more.",
        series=(Series(label="variance of the stream", x=tuple(map(float, range(len(deepest)))), y=deepest),),
        x="block",
        y="variance over D",
    )


CLAIM = Claim(
    statement="Under Pre-LN the residual stream accumulates the branches and grows with depth, so the stack needs a "
    "norm at its end.",
    source="Xiong et al., On Layer Normalization in the Transformer Architecture, 2020, lemma 2 and table 1",
    how="A decoder of width 128 with Xavier weights at 6, 24 and 96 blocks: variance of the stream, and the first "
    "loss on random tokens of 256 symbols with the final norm and without.",
    recorded="holds",
    measure=measure,
)
