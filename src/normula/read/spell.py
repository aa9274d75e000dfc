"""The formula of a layer, written from what was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from normula.formula import Formula
from normula.formula.errors import FormulaError
from normula.read.expression import Applied, Expression, Gained, Normed, Scaled, Stopped, Stream, Total, Unknown, walk
from normula.read.graph import Graph

if TYPE_CHECKING:
    from normula.read.chain import Event

DIGITS = 6
"""How many digits of a measured constant are written: single precision has seven."""

UNKNOWN = "unknown"

WORDS = {"dyt": "dyt", "derf": "derf"}
"""Norms without statistics are called by their own names; every other is `norm`."""


class Spelling:
    """A layer's statements, one for each norm, sublayer and value of the stream; canonical form writes them short.

    Args:
        graph: the program.
        events: what happens in the layer, in order.
        starts: the names of the streams by the nodes that expressions have of them; x alone, before the first event.
        ends: the nodes that the streams end as; x alone, after the last event.

    Attributes:
        text: of the formula; `unknown` where a part is not understood.
        made: the expressions that the calls and gains of the text stand for, in the order in which they are written.
        seen: what was not understood.
    """

    def __init__(
        self,
        graph: Graph,
        events: Sequence[Event],
        starts: Mapping[int, str] | None = None,
        ends: Mapping[str, int] | None = None,
    ) -> None:
        self.graph = graph
        self.made: list[Applied | Normed | Gained] = []
        self.seen = ""
        self._statements: list[str] = []
        starts = {events[0].base: "x"} if starts is None else starts
        self._names: dict[tuple[str, int], str] = {("stream", node): name for node, name in starts.items()}
        self.written = ""
        for event in events:
            unknown = next((part for part in walk(event.value) if isinstance(part, Unknown)), None)
            if unknown is not None:
                self.seen = unknown.seen
                break
            if event.root >= 0 and ("stream", event.base) in self._names:
                self._names["stream", event.root] = self._names["stream", event.base]
            self._names["stream", event.node] = self._named("s", self._text(event.value))
        self.text = UNKNOWN if self.seen else self._canonical({"x": events[-1].node} if ends is None else ends)

    def sites(self) -> dict[int, str]:
        """Where each norm stands, by its node: `attn.norm_in` only feeds attention, `mlp.norm_sum` follows a sum."""
        if self.text == UNKNOWN:
            return {}
        formula = Formula(self.written)
        return {
            part.norm: formula.sites[formula.renumbering[place]]
            for place, part in enumerate(self.made)
            if isinstance(part, Normed)
        }

    def _canonical(self, ends: Mapping[str, int]) -> str:
        new = {name: self._names["stream", node] for name, node in ends.items()}
        new = {name: value for name, value in new.items() if name != value or len(new) == 1}
        new = {name: self._named("s", value) if value in new else value for name, value in new.items()}
        try:
            self.written = "; ".join([*self._statements, *(f"{name} = {value}" for name, value in new.items())])
            return canonical(self.written)
        except FormulaError as error:
            self.seen = f"a layer that cannot be written: {error.reason}"
            return UNKNOWN

    def _named(self, letter: str, text: str) -> str:
        name = f"{letter}{len(self._statements)}"
        self._statements.append(f"{name} = {text}")
        return name

    def _text(self, expression: Expression) -> str:
        match expression:
            case Stream(node=node):
                if ("stream", node) not in self._names:
                    self.seen = self.seen or "a value of an earlier layer"
                return self._names.get(("stream", node), "x")
            case Scaled(factor=factor, value=value):
                return f"{spelled_number(factor)} * ({self._text(value)})"
            case Stopped(value=value):
                return f"stop({self._text(value)})"
            case Total(terms=terms):
                return " + ".join(f"({self._text(term)})" for term in terms)
            case Gained(node=node, value=value):
                return self._once("gain", node, f"gain * ({self._text(value)})", expression)
            case Normed(norm=norm, value=value):
                word = WORDS.get(self.graph[norm].attrs["name"], "norm")
                return self._once("norm", norm, f"{word}({self._text(value)})", expression)
            case Applied(kind=kind, ends=ends, value=value):
                return self._once(kind, ends[0], f"{kind}({self._text(value)})", expression)
        raise AssertionError(f"{expression} is not spelled")

    def _once(self, word: str, node: int, text: str, expression: Applied | Normed | Gained) -> str:
        """The name of what is computed once, however often it is read."""
        if (word, node) not in self._names:
            self.made.append(expression)
            self._names[word, node] = self._named("v", text)
        return self._names[word, node]


@lru_cache(maxsize=1024)
def canonical(written: str) -> str:
    """The canonical text of a formula; equal layers are written alike."""
    return str(Formula(written))


def spelled(graph: Graph, events: Sequence[Event]) -> str:
    """The canonical text of what happens in some events."""
    return Spelling(graph, events).text


def spelled_number(value: float) -> str:
    """A measured constant in decimal digits."""
    text = f"{value:.{DIGITS}g}"
    return text if "e" not in text else f"{float(text):.12f}".rstrip("0")
