"""Here lives Block: a formula around modules that stand in the user's own code, in either flavour of Flax."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
from jax import Array

from normula.catalog import placement
from normula.flax.layer import FUNCTIONS
from normula.flax.network import inside
from normula.formula import Formula
from normula.formula.run import Runner, number
from normula.formula.tree import Call, Gain
from normula.formula.words import NORMS, STEP
from normula.spec import Step


@dataclass(frozen=True, slots=True)
class Block:
    """One layer's formula, and the sublayer of each word in it."""

    step: Step
    sublayers: Mapping[str, Any]

    def name(self, index: int) -> str:
        """Of a norm or gain, as a parameter."""
        return "_".join(inside(self.step, index)[1:])

    def run(
        self,
        x: Array,
        norm: Callable[[str, str, Array], Array],
        sublayer: Callable[[str, Array], Array],
        gain: Callable[[str, float, tuple[int, ...]], Array],
    ) -> Array:
        """The block's output.

        Args:
            x: (..., D).
            norm: from a norm's word, its name and a value to the value normed.
            sublayer: from a sublayer's word and a value to what it makes of it.
            gain: from a gain's name, start and shape to the gain.
        """

        def call(what: Call, value: Array) -> Array:
            if what.word == "stop":
                return jax.lax.stop_gradient(value)
            if what.word in NORMS:
                return norm(what.word, self.name(what.index), value)
            return sublayer(what.word, value)

        def one_gain(what: Gain) -> Array:
            assert what.start is not None
            return gain(self.name(what.index), number(what.start, {}), (x.shape[-1],) if what.channel else ())

        y: Array = Runner({}, call, one_gain, FUNCTIONS).run(self.step.formula.tree, {"x": x})["x"]
        return y


def block(formula: str | Formula, f: Any) -> Block:
    """A block.

    Raises:
        ValueError: a formula that needs a stack around it, or a word without a sublayer.
    """
    placed = placement(formula)
    needs = set(placed.formula.symbols) | set(placed.formula.streams) - {"x"}
    if needs:
        raise ValueError(
            f"{placed.formula} has {', '.join(sorted(needs))}, which only a stack knows; build a Stack instead"
        )
    sublayers = dict(f) if isinstance(f, Mapping) else {STEP: f}
    words = set(placed.formula.sublayers)
    if words != set(sublayers):
        raise ValueError(
            f"{placed.formula} runs {', '.join(sorted(words))}, and the modules given are for "
            f"{', '.join(sorted(sublayers))}; give one for each"
        )
    if any(call.inner for call in placed.formula.calls):
        raise ValueError(
            f"{placed.formula} has a norm inside a sublayer, which stands in your own module; build a Stack"
        )
    if any(gain.start is None for gain in placed.formula.gains):
        raise ValueError(
            f"{placed.formula} does not say what its gain starts at; write gain(0) or gain(1e-5, 'channel')"
        )
    return Block(Step(prefix="block", formula=placed.formula, word=STEP, symbols={}), sublayers)
