"""Here lives Network: a plan made ready for JAX, its layers in groups that a scan can run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from normula.flax.given import Given, given
from normula.formula.run import depth_numbers, number
from normula.formula.words import NORMS
from normula.spec import Plan, Spec, Step, plan

Factory: TypeAlias = Callable[[int], Any]
Numbers: TypeAlias = tuple[tuple[NDArray[np.float64], ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Consecutive layers that run the same steps, with the same parameters' shapes.

    Attributes:
        name: of their parameters in the tree, which are stacked: the layer is the first axis.
        steps: of the first of them.
        first, count: the first layer, from 0, and how many.
        numbers: for each step, for each number in it that depends on depth, its value in each layer, (count,).
    """

    name: str
    steps: tuple[Step, ...]
    first: int
    count: int
    numbers: Numbers

    def path(self, step: Step, index: int) -> tuple[str, ...]:
        """Where in the group's tree the call or gain with this index of a step has its parameters."""
        return inside(step, index)[2:]


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """A network of a spec; every `network` of the same spec is the same object, so that it is compiled once.

    Attributes:
        spec, plan: what it is made of.
        encoder: the network whose output `cross` attends to, or None.
        groups: the layers.
        given: for each word, and each layer that has it, the sublayer that came as a module.
        makers: what made them, by word.
        is_encoder: whether it stands inside another.
    """

    spec: Spec
    plan: Plan
    encoder: Network | None
    groups: tuple[Group, ...]
    given: Mapping[str, tuple[Given, ...]]
    makers: Mapping[str, Factory]
    is_encoder: bool = False

    @property
    def reads_out(self) -> bool:
        """Whether there is a head."""
        return not self.is_encoder and (self.spec.classes or self.spec.vocab) is not None

    @property
    def is_token_wise(self) -> bool:
        """Whether every token is computed by itself, so that the input may have any number of axes."""
        return not self.spec.embeds and self.spec.classes is None and not self.spec.words & {"attn", "cross"}


def network(spec: Spec, modules: Mapping[str, Factory] | None = None) -> Network:
    """The network of a spec.

    Args:
        spec: what it is.
        modules: for sublayers of your own, a function from the layer (from 0) to a module or function.

    Raises:
        ValueError: the spec cannot be built; the message says why.
    """
    items = tuple(sorted((modules or {}).items()))
    try:
        return _network(spec, items)
    except TypeError:  # a maker that has no hash
        return _network.__wrapped__(spec, items)


@lru_cache(maxsize=256)
def _network(spec: Spec, modules: tuple[tuple[str, Factory], ...]) -> Network:
    makers = dict(modules)
    written = plan(spec, given=makers)
    return _of_plan(written, makers)


def _of_plan(written: Plan, makers: Mapping[str, Factory], is_encoder: bool = False) -> Network:
    made = {word: tuple(given(word, maker, l) for l in range(written.spec.layers)) for word, maker in makers.items()}
    used = {step.kind(call) for steps in written.layers for step in steps for call in step.sublayers}
    if unused := set(makers) - used:
        raise ValueError(
            f"no layer has a sublayer {', '.join(sorted(unused))}; the module given for it would do nothing"
        )
    return Network(
        spec=written.spec,
        plan=written,
        encoder=None if written.encoder is None else _of_plan(written.encoder, makers, is_encoder=True),
        groups=_groups(written.layers, made),
        given=made,
        makers=makers,
        is_encoder=is_encoder,
    )


def _groups(layers: Sequence[tuple[Step, ...]], made: Mapping[str, tuple[Given, ...]]) -> tuple[Group, ...]:
    """Consecutive layers of the same kind together."""
    kinds = [_kind(steps, l, made) for l, steps in enumerate(layers)]
    starts = [l for l in range(len(layers)) if l == 0 or not _same(kinds[l], kinds[l - 1])]
    ends = [*starts[1:], len(layers)]
    return tuple(
        Group(
            name="layers" if len(starts) == 1 else f"layers_{place}",
            steps=layers[start],
            first=start,
            count=end - start,
            numbers=_numbers(layers[start:end]),
        )
        for place, (start, end) in enumerate(zip(starts, ends, strict=True))
    )


def _kind(steps: tuple[Step, ...], l: int, made: Mapping[str, tuple[Given, ...]]) -> Any:
    """What makes a layer the same as another, its numbers aside."""
    own = tuple((step.formula.text, step.word) for step in steps)
    return own, tuple((word, each[l].kind) for word, each in made.items())


def _same(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except ValueError:  # a module that holds an array does not say whether it equals another
        return False


def _numbers(layers: Sequence[tuple[Step, ...]]) -> Numbers:
    """The numbers of each step that depend on depth, for every layer."""
    return tuple(
        tuple(
            np.array([number(part, layer[place].symbols) for layer in layers])
            for part in depth_numbers(step.formula.tree)
        )
        for place, step in enumerate(layers[0])
    )


def inside(step: Step, index: int) -> tuple[str, ...]:
    """The path of a call or gain, as folders; a norm that is alone in its folder is called `norm`.

    Where a step has one norm only, its place is said by the formula, and the same tree fits each place.
    """
    *folders, last = step.path(index).split(".")
    norms = [step.path(call.index).split(".") for call in step.formula.calls if call.word in NORMS]
    alone = [path for path in norms if path[:-1] == folders]
    if len(alone) == 1 and alone[0][-1] == last:
        last = "norm"
    return (*folders, last)
