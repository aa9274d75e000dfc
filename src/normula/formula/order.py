"""One order for the terms of every sum, whatever the order in which they were written.

First by what a reader expects (the skip, then branches by their sublayer, then by depth), then by what
the terms contain, and where they contain the same, by how they are used (colour refinement on the graph).
Calls that still look alike can be exchanged: one of them is marked as the first, and the others are told
apart by what they have to do with it.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, TypeAlias

from normula.formula.graph import Atom, Graph, Node, Stream, Sum
from normula.formula.scalar import GainUse, Scalar, key
from normula.formula.words import NORMS, STREAM, SUBLAYERS

Rank: TypeAlias = tuple[int, int, int, str, str]

_WORDS: Final = {word: rank for rank, word in enumerate((*SUBLAYERS, *NORMS, "stop"))}


class Order:
    """Ranks of the atoms and gains of a graph: equal for graphs that mean the same."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.uses = _uses(graph)
        self.gains = {i: f"gain({_start(gain.start)},{gain.channel})" for i, gain in graph.gains.items()}
        self.content = self._below({})
        self.colours = self.content
        self.shape = self._shapes()
        self._refine()
        while self._mark_first_of_equals():
            self._refine()

    def rank(self, atom: Atom) -> Rank:
        """What to sort atoms by: class (stream, other stream, without and with sublayers), depth, sublayer, ..."""
        if isinstance(atom, Stream):
            return (0 if atom.name == STREAM else 1, 0, 0, atom.name, "")
        depth, lead = self.shape[atom.number]
        return (3 if lead >= 0 else 2, depth, lead, self.content[atom.number], self.colours[atom.number])

    def scalar(self, value: Scalar) -> str:
        """A text that is equal for equal scalars."""
        return key(value, self.gains)

    def _shapes(self) -> list[tuple[int, int]]:
        """For each node the depth of calls, and the rank of the sublayer that it leads to (-1: none)."""
        shapes: list[tuple[int, int]] = []
        for applied in self.graph.nodes:
            below = [shapes[atom.number] if isinstance(atom, Node) else (0, -1) for atom, _ in applied.argument.terms]
            lead = _WORDS[applied.word] if applied.word in SUBLAYERS else max(lead for _, lead in below)
            shapes.append((1 + max(depth for depth, _ in below), lead))
        return shapes

    def _refine(self) -> None:
        """Join colours with those around them until that tells no more calls and gains apart."""
        kinds = 0
        while len({*self.colours.values()}) + len({*self.gains.values()}) > kinds:
            kinds = len({*self.colours.values()}) + len({*self.gains.values()})
            self.gains = self._gain_colours()
            self.colours = self._above(self._below(self.colours))

    def _mark_first_of_equals(self) -> bool:
        """Give one of several calls or gains that look alike a colour of its own, if there are any."""
        for colours in (self.colours, self.gains):
            alike: dict[str, list[int]] = {}
            for number, colour in colours.items():
                alike.setdefault(colour, []).append(number)
            several = min((colour for colour, numbers in alike.items() if len(numbers) > 1), default=None)
            if several is not None:
                first, *others = alike[several]
                twins = colours is self.colours and all(self._are_twins(first, other) for other in others)
                for place, number in enumerate(alike[several] if twins else [first]):
                    colours[number] = f"{several}#{place}"
                return True
        return False

    def _are_twins(self, one: int, other: int) -> bool:
        """Whether two calls read the same and are read alike by the same, so that nothing depends on which is which."""
        return self.graph.nodes[one].argument == self.graph.nodes[other].argument and set(self.uses[one]) == set(
            self.uses[other]
        )

    def _below(self, colours: dict[int, str]) -> dict[int, str]:
        """Colour of every node from its word, its own colour and the colours of what it reads."""
        result: dict[int, str] = {}
        for number, applied in enumerate(self.graph.nodes):
            inner = ",".join(f"{site}={word}" for site, word in applied.inner)
            inner += "" if applied.start is None else f"gain={_start(applied.start)}"
            text = f"{applied.word}[{inner}]({self._sum_key(applied.argument, result)}){colours.get(number, '')}"
            result[number] = _short(text)
        return result

    def _above(self, below: dict[int, str]) -> dict[int, str]:
        """Each colour joined with those of the places that read the node."""
        return {
            number: _short("|".join([colour, *sorted(self._use_key(*use) for use in self.uses[number])]))
            for number, colour in below.items()
        }

    def _use_key(self, place: int | str, coefficient: Scalar) -> str:
        return f"{self.scalar(coefficient)}@{self.colours[place] if isinstance(place, int) else place}"

    def _gain_colours(self) -> dict[int, str]:
        """Each gain's colour joined with those of the terms that it stands in."""
        terms: dict[int, list[str]] = {index: [] for index in self.gains}
        texts: dict[Scalar, dict[GainUse, str]] = {}
        for place, total in _places(self.graph):
            for atom, coefficient in total.terms:
                what = self.colours[atom.number] if isinstance(atom, Node) else atom.name
                where = self.colours[place] if isinstance(place, int) else place
                if coefficient not in texts:
                    texts[coefficient] = {
                        use: _short(key(coefficient, {**self.gains, use.index: "*"})) for use in coefficient.gains
                    }
                for use, text in texts[coefficient].items():
                    terms[use.index].append(f"{text}*{what}@{where}")
        return {index: _short("|".join([colour, *sorted(terms[index])])) for index, colour in self.gains.items()}

    def _sum_key(self, total: Sum, colours: dict[int, str]) -> str:
        return "+".join(
            sorted(
                f"{self.scalar(c)}*{colours[atom.number] if isinstance(atom, Node) else atom.name}"
                for atom, c in total.terms
            )
        )


def _places(graph: Graph) -> list[tuple[int | str, Sum]]:
    """Every sum with what reads it: a node, or the name of an output."""
    return [*enumerate(applied.argument for applied in graph.nodes), *((f"={k}", v) for k, v in graph.outputs.items())]


def _uses(graph: Graph) -> dict[int, list[tuple[int | str, Scalar]]]:
    uses: dict[int, list[tuple[int | str, Scalar]]] = {number: [] for number in range(len(graph.nodes))}
    for place, total in _places(graph):
        for atom, coefficient in total.terms:
            if isinstance(atom, Node):
                uses[atom.number].append((place, coefficient))
    return uses


def _start(start: Scalar | None) -> str:
    return "" if start is None else key(start, {})


def _short(text: str) -> str:
    """The text itself, or its digest where it is long (shared values would make it grow without bound)."""
    return text if len(text) <= 120 else blake2b(text.encode(), digest_size=16).hexdigest()
