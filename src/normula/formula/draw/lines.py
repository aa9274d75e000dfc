"""Here live the lines of a drawing: which boxes stand one above another in one column.

A line follows a value upwards through the boxes that change it. The first line of each stream is its
skip path, if it has one: the way from its old value to its new one that meets no sublayer. Whatever else
reads a value leaves its line below the next box of that line.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from normula.formula.draw.diagram import Feed, Node
from normula.formula.words import STREAM


class Lines:
    """A diagram divided into lines.

    Attributes:
        nodes: the boxes, and the bends where a value must leave its line to be read further up.
        main: for each box the feed that enters from below; the other one, of a sum, enters from the side.
        following: for each box the one that comes next on its line.
        skips: the boxes on the skip paths of the streams.
        rules: (a, b, n): b stands at least n rows above a.
    """

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        self.nodes = list(nodes)
        self.main: dict[int, int] = {}
        self.following: dict[int, int] = {}
        self.skips: set[int] = set()
        self.rules: set[tuple[int, int, int]] = set()
        self.carried, self.reached, self.depth = _traced(nodes)
        spines = self._spines()
        self.spine = {number for spine in spines for number in spine}
        self._choose_mains()
        for spine in spines:
            for below, above in pairwise(spine):
                self._continue(below, above)
        number = 0
        while number < len(self.nodes):  # bends are added on the way
            self._find_next(number)
            number += 1

    def exits(self, source: int) -> list[tuple[int, int]]:
        """What reads a value: (box, which of its feeds)."""
        return [
            (number, place)
            for number, node in enumerate(self.nodes)
            for place, feed in enumerate(node.feeds)
            if feed.source == source
        ]

    def all_rules(self) -> set[tuple[int, int, int]]:
        """The rules, and that each box stands above what feeds it."""
        feeds = {(feed.source, number, 1) for number, node in enumerate(self.nodes) for feed in node.feeds}
        return self.rules | feeds

    def chains(self) -> list[list[int]]:
        """The lines, each from the bottom to the top."""
        chains = []
        for number in set(range(len(self.nodes))) - set(self.following.values()):
            chain = [number]
            while chain[-1] in self.following:
                chain.append(self.following[chain[-1]])
            chains.append(chain)
        return sorted(chains)

    def _spines(self) -> list[list[int]]:
        """For each stream the way back from its new value, along its skip path where there is one."""
        ends = {node.lines[0].removesuffix("'"): i for i, node in enumerate(self.nodes) if node.kind == "out"}
        spines: list[list[int]] = []
        first = sorted(ends, key=lambda stream: (stream not in self.carried[ends[stream]], stream != STREAM))
        for stream, end in ((stream, ends[stream]) for stream in first):
            taken = {number for spine in spines for number in spine}
            spine = [end]
            while feeds := self.nodes[spine[-1]].feeds:
                self.main[spine[-1]] = min(range(len(feeds)), key=lambda i: self._farness(feeds[i].source, stream))
                source = feeds[self.main[spine[-1]]].source
                if source in taken:
                    break
                spine.append(source)
            spines.append(spine[::-1])
            if stream in self.carried[end]:
                self.skips |= set(spine)
        return spines

    def _farness(self, number: int, stream: str) -> tuple[bool, bool, int]:
        """How far a value is from being the stream itself."""
        skips = stream in self.carried[number]
        return not skips, stream not in self.reached[number], self.depth[number] if skips else 0

    def _choose_mains(self) -> None:
        """Off the spines a branch goes straight on: what joins it from the side is the spine, or its own branch."""
        for number, node in enumerate(self.nodes):
            if number in self.main or not node.feeds:
                continue
            own = [i for i, feed in enumerate(node.feeds) if feed.source not in self.spine] or [0]
            first, last = own[0], own[-1]
            self.main[number] = last if self._leads(node.feeds[last].source, node.feeds[first].source) else first

    def _leads(self, low: int, high: int) -> bool:
        """Whether the rules and feeds put one box below another, or they are the same."""
        above: dict[int, list[int]] = {}
        for a, b, _ in self.all_rules():
            above.setdefault(a, []).append(b)
        seen, open_ = {low}, [low]
        while open_:
            new = [number for number in above.get(open_.pop(), []) if number not in seen]
            seen.update(new)
            open_ += new
        return high in seen

    def _continue(self, below: int, above: int) -> None:
        """Let a line go on to a box; other readers of the value leave below that box, by a bend where need be."""
        self.following[below] = above
        others = [exit_ for exit_ in self.exits(below) if exit_ != (above, self.main[above])]
        late = [exit_ for exit_ in others if self._must_bend(exit_[0], above)]
        self.rules |= {
            (number, above, 0 if self.main[number] == place else 1)
            for number, place in others
            if (number, place) not in late
        }
        if late:
            bend = len(self.nodes)
            self.nodes.append(Node("bend", feeds=(Feed(below),)))
            self.main[bend] = 0
            self.depth.append(self.depth[below])
            self.rules.add((bend, above, 0))
            for number, place in late:
                feeds = list(self.nodes[number].feeds)
                feeds[place] = replace(feeds[place], source=bend)
                self.nodes[number] = replace(self.nodes[number], feeds=tuple(feeds))

    def _must_bend(self, reader: int, above: int) -> bool:
        ends_above = self.nodes[reader].kind == "out" and self.nodes[above].kind != "out"
        return ends_above or self._leads(above, reader)

    def _find_next(self, below: int) -> None:
        """Let a line off the spines go on to its last reader, if all others can leave before without waiting."""
        if below in self.following:
            return
        exits = self.exits(below)
        free = set(range(len(self.nodes))) - set(self.following.values())
        straight = [number for number, place in exits if self.main[number] == place and number in free]
        if not straight:
            return
        above = max(straight, key=lambda number: (self._height(number), -number))
        others = [number for number, place in exits if (number, place) != (above, self.main[above])]
        if all(self._height(number) <= self._height(above) and not self._leads(above, number) for number in others):
            self._continue(below, above)

    def _height(self, number: int) -> float:
        return float("inf") if self.nodes[number].kind == "out" else self.depth[number]


def _traced(nodes: tuple[Node, ...]) -> tuple[list[set[str]], list[set[str]], list[int]]:
    """For each box: the streams that it carries past all sublayers, the streams that it reads at all, its depth."""
    carried: list[set[str]] = []
    reached: list[set[str]] = []
    depth: list[int] = []
    for node in nodes:
        own = set(node.lines) if node.kind == "in" else set()
        below = [feed.source for feed in node.feeds]
        blocks = node.kind in ("sublayer", "stop")
        carried.append(own if blocks else own.union(*(carried[number] for number in below)))
        reached.append(own.union(*(reached[number] for number in below)))
        depth.append(1 + max((depth[number] for number in below), default=-1))
    return carried, reached, depth
