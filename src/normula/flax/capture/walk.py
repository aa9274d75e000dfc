"""A jaxpr from its first equation to its last, with all that it calls entered and all that it repeats written out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal
from numpy.typing import NDArray

from normula.flax.capture import words
from normula.flax.capture.calls import Label
from normula.flax.capture.operation import Operation
from normula.flax.capture.operations import record
from normula.flax.capture.recorder import Held, Recorder, shaped, slice_of
from normula.record.program import Kind

MOST_STEPS: Final = 10_000
"""Of a loop that is written out; a longer one is one opaque node."""

MOST_FIXED: Final = 1 << 20
"""Up to this many elements, what depends on written numbers alone is computed where nothing else is."""


class UndecidedError(Exception):
    """What runs depends on values, and this pass computes none."""


class Walk:
    """One pass over a jaxpr.

    Args:
        recorder: where nodes go.
        real: whether values are computed, or only shapes and what is written in the code.
        has_scopes: whether equations are marked with the paths of modules.
    """

    def __init__(self, recorder: Recorder, *, real: bool, has_scopes: bool) -> None:
        self.recorder, self._real, self._has_scopes = recorder, real, has_scopes
        self._marks: Label = ()

    def run(self, jaxpr: Jaxpr, constants: Sequence[Held], arguments: Sequence[Held]) -> list[Held]:
        """The results of a jaxpr."""
        held: dict[Any, Held] = dict(zip(jaxpr.constvars, constants, strict=True))
        held |= zip(jaxpr.invars, arguments, strict=True)

        def read(variable: Any) -> Held:
            return self._literal(variable) if isinstance(variable, Literal) else held[variable]

        outer, last = self._marks, _last_uses(jaxpr)
        for place, equation in enumerate(jaxpr.eqns):
            self._mark(self._marked(outer, equation))
            results = self._equation(equation, [read(one) for one in equation.invars])
            held |= zip(equation.outvars, results, strict=True)
            for variable in last.get(place, ()):
                del held[variable]
        self._mark(outer)
        return [read(one) for one in jaxpr.outvars]

    def closed(self, jaxpr: ClosedJaxpr | Jaxpr, arguments: Sequence[Held]) -> list[Held]:
        """The results of a jaxpr with its constants."""
        if isinstance(jaxpr, Jaxpr):
            return self.run(jaxpr, [], arguments)
        return self.run(jaxpr.jaxpr, [self.written(one) for one in jaxpr.consts], arguments)

    def written(self, value: Any) -> Held:
        """A value that is written in the code."""
        array = value if isinstance(value, jax.Array) else np.asarray(value)
        return self.recorder.constant(shaped(array.shape, array.dtype), array)

    def _literal(self, literal: Any) -> Held:
        aval = literal.aval
        value = np.asarray(literal.val, dtype=aval.dtype)
        if value.ndim == 0 and value.dtype != bool and not np.iscomplexobj(value):
            return Held(self.recorder.number(float(value)), aval, value, fixed=True)
        return self.recorder.constant(aval, value)

    def _mark(self, marks: Label) -> None:
        """What happens now happens where the marks say; the first is the model itself."""
        self._marks = marks
        self.recorder.scope = marks[1:]

    def _marked(self, outer: Label, equation: JaxprEqn) -> Label:
        """The path of the module that an equation belongs to, where it is marked; the body of a scan says its own."""
        if not self._has_scopes:
            return outer
        marks = [getattr(one, "name", "") for one in equation.source_info.name_stack.stack]
        own = tuple(mark for mark in marks if re.fullmatch(r"[A-Za-z_]\w*(?:\.\w+)?", mark))
        home = outer[1:-1] if outer and outer[-1].isdigit() else ()
        return (*outer, *(own[len(home) :] if own[: len(home)] == home else own))

    def _equation(self, equation: JaxprEqn, ins: list[Held]) -> list[Held]:
        name = equation.primitive.name
        if name in words.CALLS and (inner := _inner(equation, len(ins))) is not None:
            return self.closed(inner, ins)
        if name == "cond":
            return self.closed(self._branch(equation, ins[0]), ins[1:])
        if name == "while":
            return self._while(equation, ins)
        if name == "scan" and not self._is_recurrence(equation, ins):
            return self._scan(equation, ins)
        return self._plain(equation, ins)

    def _plain(self, equation: JaxprEqn, ins: list[Held]) -> list[Held]:
        """The results of one operation."""
        ins = self.recorder.read(ins)
        avals = [_known(one.aval) for one in equation.outvars]
        fixed = all(one.fixed for one in ins)
        values: Sequence[Any] = [None] * len(avals)
        size = sum(int(np.prod(aval.shape)) for aval in avals)
        if all(one.value is not None for one in ins) and (self._real or (fixed and size <= MOST_FIXED)):
            with jax.ensure_compile_time_eval() if fixed else nullcontext():
                values = _evaluated(equation, [one.value for one in ins])
        if fixed:
            number = self.recorder.number_of(ins[0].node) if equation.primitive.name in _SPREADING else None
            return [self.recorder.constant(aval, value, number) for aval, value in zip(avals, values, strict=True)]
        name = equation.primitive.name
        if name == "scan":
            return self._recurrence(equation, ins, avals, values)
        nodes = record(Operation(self.recorder, name, equation.params, ins, avals, values))
        return self._held(nodes, avals, values)

    def _held(self, nodes: Sequence[int], avals: Sequence[Any], values: Sequence[Any]) -> list[Held]:
        passed = self.recorder.passed
        return [
            Held(node, aval, None if value is None else passed(node, value))
            for node, aval, value in zip(nodes, avals, values, strict=True)
        ]

    # ---- what repeats or chooses

    def _branch(self, equation: JaxprEqn, which: Held) -> ClosedJaxpr:
        """The branch that this pass takes."""
        if which.value is None:
            raise UndecidedError("A branch depends on values.")
        branches = equation.params["branches"]
        branch: ClosedJaxpr = branches[min(max(int(which.value), 0), len(branches) - 1)]
        return branch

    def _while(self, equation: JaxprEqn, ins: list[Held]) -> list[Held]:
        first, second = equation.params["cond_nconsts"], equation.params["body_nconsts"]
        asked, done, state = ins[:first], ins[first : first + second], ins[first + second :]
        for _ in range(MOST_STEPS):
            (goes_on,) = self.closed(equation.params["cond_jaxpr"], [*asked, *state])
            if goes_on.value is None:
                raise UndecidedError("How often a loop runs depends on values.")
            if not bool(goes_on.value):
                return state
            state = self.closed(equation.params["body_jaxpr"], [*done, *state])
        raise ValueError(f"A loop of this model runs more than {MOST_STEPS} times. Pass a smaller example.")

    def _is_recurrence(self, equation: JaxprEqn, ins: Sequence[Held]) -> bool:
        """Whether a scan runs over what flows, such as tokens, and not over layers."""
        before = equation.params["num_consts"] + equation.params["num_carry"]
        nodes = [one.node for one in ins[before:]]
        flows = any(self.recorder.flows(node) for node in nodes)
        layers = any(self.recorder.is_weight(node) for node in nodes)
        too_long = equation.params["length"] > MOST_STEPS
        return too_long or (flows and not layers and equation.params["num_carry"] > 0)

    def _scan(self, equation: JaxprEqn, ins: list[Held]) -> list[Held]:
        """The body of a scan once for each step."""
        first, second = equation.params["num_consts"], equation.params["num_carry"]
        constants, state, over = ins[:first], ins[first : first + second], ins[first + second :]
        length = equation.params["length"]
        rows: list[list[Held]] = [[] for _ in equation.outvars[second:]]
        home = self._stacked(over)
        for step in reversed(range(length)) if equation.params["reverse"] else range(length):
            with self._inside(home, step):
                slices = [self._row(one, step) for one in over]
                results = self.closed(equation.params["jaxpr"], [*constants, *state, *slices])
            state = results[:second]
            for row, result in zip(rows, results[second:], strict=True):
                row.append(result)
        if equation.params["reverse"]:
            rows = [row[::-1] for row in rows]
        outs = [one.aval for one in equation.outvars[second:]]
        return [*state, *(self._joined(row, aval) for row, aval in zip(rows, outs, strict=True))]

    def _row(self, whole: Held, step: int) -> Held:
        """One step's slice of what a scan runs over."""
        if (part := self.recorder.part(whole, step)) is not None:
            return part
        aval, value = slice_of(whole, step)
        if whole.fixed:
            return self.recorder.constant(aval, value, self.recorder.number_of(whole.node))
        return Held(self.recorder.emit("view", (whole.node,), aval, value, name="select"), aval, value)

    def _joined(self, row: Sequence[Held], like: Any) -> Held:
        """What the steps of a scan gave, one after another."""
        aval = _known(like)
        values = [one.value for one in row]
        is_key = jnp.issubdtype(aval.dtype, jax.dtypes.extended)
        value: Any = None
        if not is_key and all(one is not None for one in values):
            is_traced = any(isinstance(one, jax.core.Tracer) for one in values)
            value = jnp.stack(values) if is_traced else _stack(values, aval)
        if all(one.fixed for one in row):
            return self.recorder.constant(aval, value)
        return Held(self.recorder.emit("join", [one.node for one in row], aval, value, name="stack"), aval, value)

    def _stacked(self, over: Sequence[Held]) -> Label | None:
        """Where the layers of a scan stand: where it is marked, or in the folder that holds all their parameters."""
        recorder = self.recorder
        weights = [one.node for one in over if recorder.is_weight(one.node)]
        if not weights and not recorder.scope:
            return None
        homes = [home for node in weights if (home := recorder.homes[node]) is not None]
        common = homes[0] if homes else ()
        for home in homes[1:]:
            depth = 0
            while depth < min(len(common), len(home)) and common[depth] == home[depth]:
                depth += 1
            common = common[:depth]
        home = recorder.scope or common
        if common[: len(home)] == home:
            for node in weights:
                recorder.stacks[recorder.through(node)] = len(home)
        return home

    @contextmanager
    def _inside(self, home: Label | None, step: int) -> Iterator[None]:
        """Inside, what happens belongs to one step of a scan."""
        marks, floor = self._marks, self.recorder.floor
        if home is not None:
            self.recorder.floor = (*home, str(step))
            if self._has_scopes:
                self._mark((*marks[:1], *self.recorder.floor))
        yield
        self._mark(marks)
        self.recorder.floor = floor

    def _recurrence(
        self, equation: JaxprEqn, ins: Sequence[Held], avals: Sequence[Any], values: Sequence[Any]
    ) -> list[Held]:
        """A scan over tokens: one node, of which all results are parts; attention in blocks of keys is one too."""
        recorder, first = self.recorder, equation.params["num_consts"]
        carried = first + equation.params["num_carry"]
        nodes = [one.node for one in (*ins[:first], *ins[carried:], *ins[first:carried])]
        nodes.sort(key=lambda node: not recorder.flows(node))
        attends = _attends(equation) and any(recorder.flows(one.node) for one in ins[:first])
        main = max(range(len(avals)), key=lambda place: (len(avals[place].shape), place))
        kind: Kind = "attention" if attends else "recurrence"
        whole = recorder.emit(kind, nodes, avals[main], values[main], name="scan")
        parts = [
            whole if place == main else recorder.emit("view", (whole,), aval, value, name="part")
            for place, (aval, value) in enumerate(zip(avals, values, strict=True))
        ]
        return self._held(parts, avals, values)


_SPREADING: Final = ("broadcast_in_dim", "reshape", "squeeze", "convert_element_type", "expand_dims", "copy")
"""What leaves one number everywhere the same number, but for its type."""


def _stack(values: Sequence[Any], aval: Any) -> NDArray[Any]:
    """The same numbers as an array of JAX has, without its memory for every step."""
    whole = np.zeros(aval.shape, aval.dtype)
    for place, one in enumerate(values):
        whole[place] = np.asarray(one)
    return whole


def _last_uses(jaxpr: Jaxpr) -> dict[int, list[Any]]:
    """For each equation, the variables that are not read after it: what they hold can go."""
    last: dict[Any, int] = {}
    for place, equation in enumerate(jaxpr.eqns):
        last |= dict.fromkeys((one for one in equation.invars if not isinstance(one, Literal)), place)
        last |= dict.fromkeys(equation.outvars, place)
    kept = {one for one in jaxpr.outvars if not isinstance(one, Literal)}
    found: dict[int, list[Any]] = {}
    for variable, place in last.items():
        if variable not in kept:
            found.setdefault(place, []).append(variable)
    return found


def _attends(equation: JaxprEqn) -> bool:
    """Whether a scan may be attention in blocks: exponentials below a running maximum, and products of matrices."""
    names = [one.primitive.name for one in _equations(equation.params["jaxpr"].jaxpr) if not _has_number(one)]
    return "exp" in names and not {"max", "reduce_max"}.isdisjoint(names) and "dot_general" in names


def _has_number(equation: JaxprEqn) -> bool:
    return any(isinstance(one, Literal) for one in equation.invars)


def _equations(jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
    """The equations of a jaxpr, and of those that it calls."""
    for equation in jaxpr.eqns:
        yield equation
        inner = _inner(equation, len(equation.invars))
        if inner is not None:
            yield from _equations(inner.jaxpr if isinstance(inner, ClosedJaxpr) else inner)


def _known(aval: Any) -> jax.ShapeDtypeStruct:
    return shaped(aval.shape, aval.dtype)


def _inner(equation: JaxprEqn, count: int) -> ClosedJaxpr | Jaxpr | None:
    """The jaxpr that a call runs."""
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        found = equation.params.get(name)
        if isinstance(found, ClosedJaxpr | Jaxpr):
            inner = found.jaxpr if isinstance(found, ClosedJaxpr) else found
            return found if len(inner.invars) == count else None
    return None


def _evaluated(equation: JaxprEqn, values: Sequence[Any]) -> list[Any]:
    """The results of one operation on real arrays."""
    result = equation.primitive.bind(*values, **equation.params)  # type: ignore[no-untyped-call]
    return list(result) if equation.primitive.multiple_results else [result]
