"""Absorb factors on the skip: DeepNorm's and Keel's numbers, Admin's numbers for each feature.

    norm_e(a x + f(x)) = norm_{e/a^2}(x + f(x)/a)                    one number a: into what writes f's output
    x = g n + b:  norm(w x + f(x)) = norm(x' + f(x'/w)), x' = w x    one for each feature: into g and b, out of f's maps

Wang et al., DeepNet, 2022; Liu et al., Understanding the Difficulty of Training Transformers, 2020. An optimizer
takes other steps on the new weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from normula.formula import Formula
from normula.read.chain import Event
from normula.read.expression import Applied, Expression, Gained, Normed, Scaled, Stream, Total
from normula.read.spell import Spelling
from normula.record.conversion import Carry, Conversion, Edit, Epsilon, LinearMap, Scale, Vector
from normula.rewire.conversions.model import OUTPUT, Model
from normula.rewire.conversions.writers import Writers
from normula.rewire.errors import RewireError


def absorb(model: Model) -> Conversion:
    """Absorb every factor on a skip that a norm follows.

    Raises:
        RewireError: there is none, or one cannot be absorbed.
    """
    found = _Absorbed(model)
    if not found.done:
        raise RewireError(
            "A factor on the skip is absorbed where a norm follows the sum, norm(a*x + f(x)); no layer here has one."
        )
    return Conversion(
        name="absorb",
        edits=tuple(found.edits),
        done=tuple(found.done),
        to=found.placement(),
        fixed=tuple(found.ones),
        added=-sum(
            model.values.size(name)
            for name in (*found.ones, *(one.gain for one in found.edits if isinstance(one, Carry)))
        ),
    )


@dataclass(slots=True)
class _Absorbed:
    model: Model
    edits: list[Edit] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    ones: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for one in self.model.found:
            for layer in one.layers:
                events = layer.layer.events
                kept = tuple(
                    self._event(event, after) for event, after in zip(events, (*events[1:], None), strict=True)
                )
                self.texts.append(Spelling(self.model.graph, kept).text)

    def placement(self) -> dict[str, object]:
        """What is left of the formulas: a step where it is the same for all sublayers."""
        words = [tuple(Formula(text).sublayers) for text in self.texts]
        step = Formula("norm(x + f(x))")
        is_step = all(text == str(step.layer(one)) for text, one in zip(self.texts, words, strict=True))
        if not is_step and len(set(self.texts)) > 1:
            raise RewireError(
                f"Without the factors, layers of this model differ: {'; '.join(sorted(set(self.texts)))}."
            )
        first = self.model.found[0]
        return {
            "name": "absorbed",
            "formula": str(step) if is_step else self.texts[0],
            "embed": "norm(x)" if first.embed else "x",
            "final": "norm(x)" if first.final else "x",
        }

    def _event(self, event: Event, after: Event | None) -> Event:
        """An event without the factor on its skip, where a norm follows."""
        match event.value, None if after is None else after.value:
            case Total(terms=terms) as total, Normed(norm=norm, value=Stream(node=node)) if node == event.node:
                kept = tuple(self._without(norm, total, term) for term in terms)
                return replace(event, value=replace(total, terms=kept))
        return event

    def _without(self, norm: int, total: Total, term: Expression) -> Expression:
        match term:
            case Scaled(factor=factor, value=Stream() as stream):
                self._number(norm, total, factor)
                return stream
            case Gained(gain=gain, value=Stream(node=node) as stream):
                self._features(gain, node)
                return stream
        return term

    def _number(self, norm: int, total: Total, factor: float) -> None:
        model = self.model
        affine = model.affine(norm)
        branches = [part for part in total.terms if isinstance(part, Applied)]
        if len(branches) != len(total.terms) - 1 or factor <= 0:
            raise RewireError(f"The sum before {affine.path} is not one of a*x, with a above 0, and sublayers.")
        writers = Writers(model, [end for one in branches for end in one.ends])
        problem = writers.problem or writers.others()
        if problem:
            raise RewireError(
                f"The factor {factor:g} cannot be divided out of the branch before {affine.path}: {problem}."
            )
        names = [model.graph[node].attrs["names"][0] for node in writers.axes]
        self.edits += [Scale(name=name, factor=1.0 / factor) for name in names]
        self.edits.append(Epsilon(norm=affine, eps=affine.eps / factor**2))
        eps = f"{affine.eps:g} -> {affine.eps / factor**2:g}"
        self.done.append(f"{', '.join(names)}: divided by {factor:g}; eps of {affine.path}: {eps}")

    def _features(self, gain: int, node: int) -> None:
        model = self.model
        plain = model.parameter(gain)
        if plain is None:
            raise RewireError("A factor on the skip is made of a parameter in a way that is not read.")
        name = model.graph[plain[0]].attrs["names"][0]
        made = self._made(name, node)
        if not made:
            self.ones.append(name)
            self.done.append(f"{name}: it is 1 for all features, and goes")
            return
        self.edits.append(Carry(gain=name, made=made, maps=self._maps(name, node, plain[0])))
        self.done.append(f"{name} -> {', '.join(one.name for one in made)}")

    def _made(self, name: str, node: int) -> tuple[Vector, ...]:
        """Where the skip's value is made."""
        model = self.model
        if model.graph.kind(node) == "norm":
            affine = model.affine(node)
            vectors = tuple(one for one in (affine.gain, affine.bias) if one is not None)
            if affine.gain is not None:
                return vectors
        writers = Writers(model, [node])
        rows = all(axis == len(model.graph[one].shape) - 1 for one, axis in writers.axes.items())
        if writers.problem or writers.others() or not rows:
            if model.values.constant(Vector(name=name), 1.0) == 1.0:
                return ()
            raise RewireError(
                f"{name} has nothing to go into: the value that it multiplies is no norm's with a gain, "
                "nor a sum of rows of tables."
            )
        return tuple(Vector(name=model.graph[one].attrs["names"][0]) for one in writers.axes)

    def _maps(self, name: str, node: int, gain: int) -> tuple[LinearMap, ...]:
        """What else reads the skip's value: linear maps of their own."""
        model = self.model
        width = model.graph[node].shape[-1]
        found: dict[str, LinearMap] = {}
        users: set[int] = set()
        for user, view in model.readers(node):
            if user != OUTPUT and model.graph.kind(user) == "mul" and self._is_skip(user, gain):
                continue
            one = model.map_of(user, view, width)
            if isinstance(one, str):
                raise RewireError(f"{name} cannot be taken out of what reads the skip's value: {one}.")
            found[one.weight] = one
            users.add(user)
        for user in users:
            if others := model.others(model.matrix(user), users):
                raise RewireError(f"{name} cannot go into a matrix that {model.where(others[0])} uses too.")
        return tuple(found.values())

    def _is_skip(self, user: int, gain: int) -> bool:
        return any(self.model.under_views(one) == gain for one in self.model.graph.inputs(user))
