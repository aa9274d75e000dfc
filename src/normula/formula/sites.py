"""Names for the places where a step holds parameters: `norm_in`, `norm_out`, `norm_sum`, `gain`, `f`.

A name says what the place does, found from where its value goes, never from what a model calls it:
`norm_in` only feeds sublayers, `norm_out` is on a branch's output, `norm_sum` is after a sum with a
branch. In a formula of a whole layer the sublayer comes first: `attn.norm_in`, `mlp_2.f`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from normula.formula.text import calls, is_number
from normula.formula.tree import Assign, Binary, Call, Expr, Gain, Name, Negative, Tree
from normula.formula.words import STEP, STREAM, SUBLAYERS


def sites(tree: Tree) -> tuple[str, ...]:
    """The site of each call and gain, by index."""
    return _Sites(tree).all()


@dataclass(slots=True)
class _Use:
    """Where a value goes: into which sublayers, and whether into a stream or another norm."""

    sublayers: list[int] = field(default_factory=list)
    elsewhere: bool = False


class _Sites:
    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.calls = [call for statement in tree.statements for call in calls(statement.value) if call.index >= 0]
        self.owners = self._owners()
        self.uses: dict[int, _Use] = {call.index: _Use() for call in self.calls}
        self.temporary = self._temporaries()
        self.branches = dict(self.owners)
        self.taken: set[str] = set()

    def all(self) -> tuple[str, ...]:
        self._trace()
        found = {call.index: self._call_site(call) for call in self.calls}
        for statement in self.tree.statements:
            found |= self._gain_sites(statement)
        return tuple(found[index] for index in sorted(found))

    def _owners(self) -> dict[int, str]:
        """What each sublayer is called in this formula: its word, numbered where it comes again; nothing for f."""
        owners: dict[int, str] = {}
        for call in self.calls:
            if call.word in SUBLAYERS:
                count = 1 + sum(self_word.rstrip("_0123456789") == call.word for self_word in owners.values())
                owners[call.index] = "" if call.word == STEP else call.word if count == 1 else f"{call.word}_{count}"
        return owners

    def _temporaries(self) -> set[str]:
        """Names that are only values of this step, not streams."""
        assigned = {statement.name for statement in self.tree.statements}
        return assigned - set(streams(self.tree))

    def _trace(self) -> None:
        """Follow every value to where it is read."""
        numbers: set[str] = set()
        held: dict[str, list[int]] = {}
        for statement in self.tree.statements:
            if is_number(statement.value, numbers):
                numbers.add(statement.name)
                continue
            for call in calls(statement.value):
                for index in _direct(call.argument, held):
                    if call.word in SUBLAYERS:
                        self.uses[index].sublayers.append(call.index)
                    else:
                        self.uses[index].elsewhere = True
            ends = _direct(statement.value, held)
            if statement.name in self.temporary:
                held[statement.name] = ends
            else:
                for index in ends:
                    self.uses[index].elsewhere = True
        self.held = held

    def _call_site(self, call: Call) -> str:
        if call.word in SUBLAYERS:
            return _joined(self.owners[call.index], "f")
        use = self.uses[call.index]
        inside = [index for index in _direct(call.argument, self._held_at(call)) if index in self.branches]
        feeds = dict.fromkeys(use.sublayers)
        if feeds and not use.elsewhere:
            return self._fresh(self.owners[next(iter(feeds))] if len(feeds) == 1 else "", "norm_in")
        if inside:
            owner, role = self.branches[inside[-1]], "norm_sum"
            if isinstance(_unscaled(call.argument), Call | Name):
                self.branches[call.index], role = owner, "norm_out"
            return self._fresh(owner, role)
        if feeds:
            return self._fresh(self.owners[next(iter(feeds))] if len(feeds) == 1 else "", "norm_in")
        return self._fresh("", "norm")

    def _held_at(self, call: Call) -> dict[str, list[int]]:
        """Values that are a sublayer's output under a name, where this call stands."""
        held: dict[str, list[int]] = {}
        for statement in self.tree.statements:
            if any(call is inside for inside in calls(statement.value)):
                return held
            if statement.name in self.temporary:
                held[statement.name] = _direct(statement.value, held)
        return held

    def _gain_sites(self, statement: Assign) -> dict[int, str]:
        found: dict[int, str] = {}
        last = [self.owners[call.index] for call in calls(statement.value) if call.index in self.owners]

        def walk(expr: Expr, operand: Expr | None) -> None:
            match expr:
                case Gain(index=index):
                    branch = [i for i in _direct(operand, self.held) if i in self.branches] if operand else []
                    owner = self.branches[branch[-1]] if branch else last[-1] if last else ""
                    skips = operand is not None and not branch
                    found[index] = self._fresh(owner, "gain_skip" if skips else "gain")
                case Negative(value=value):
                    walk(value, operand)
                case Binary(op="*", left=left, right=right):
                    walk(left, operand if is_number(right) else right)
                    walk(right, operand)
                case Binary(left=left, right=right):
                    walk(left, operand)
                    walk(right, operand)
                case Call(argument=argument):
                    walk(argument, operand if is_number(expr) else None)

        walk(statement.value, None)
        return found

    def _fresh(self, owner: str, role: str) -> str:
        name, count = _joined(owner, role), 1
        while name in self.taken:
            count += 1
            name = f"{_joined(owner, role)}_{count}"
        self.taken.add(name)
        return name


def streams(tree: Tree) -> tuple[str, ...]:
    """x, and the names that are read before they are assigned, in order."""
    assigned: set[str] = set()
    numbers: set[str] = set()
    found = [STREAM]
    for statement in tree.statements:
        found += [name for name in _vectors(statement.value, numbers) if name not in assigned and name not in found]
        if is_number(statement.value, numbers):
            numbers.add(statement.name)
        assigned.add(statement.name)
    return tuple(found)


def _vectors(expr: Expr, numbers: set[str]) -> list[str]:
    """The names of vectors that an expression reads, from left to right."""
    match expr:
        case Name(name=name):
            return [] if is_number(expr, numbers) else [name]
        case Negative(value=value) | Call(argument=value):
            return _vectors(value, numbers)
        case Binary(left=left, right=right):
            return _vectors(left, numbers) + _vectors(right, numbers)
    return []


def _direct(expr: Expr, held: dict[str, list[int]]) -> list[int]:
    """The calls whose values are terms of an expression, also under a name."""
    match expr:
        case Name(name=name):
            return held.get(name, [])
        case Negative(value=value):
            return _direct(value, held)
        case Binary(left=left, right=right):
            return _direct(left, held) + _direct(right, held)
        case Call(word="stop", argument=argument):
            return _direct(argument, held)
        case Call(index=index) if index >= 0:
            return [index]
    return []


def _unscaled(expr: Expr) -> Expr:
    """The vector under a factor."""
    match expr:
        case Negative(value=value):
            return _unscaled(value)
        case Binary(op="*", left=left, right=right):
            return _unscaled(right) if is_number(left) else _unscaled(left)
        case Binary(op="/", left=left):
            return _unscaled(left)
    return expr


def _joined(owner: str, role: str) -> str:
    return f"{owner}.{role}" if owner else role
