"""Registered operators: what the notation cannot say of several streams, by name.

An operator holds a state of its own around the steps. It makes the state from x, reads from it what a step's
branch is given, writes the branch's result into it, and reads x from it at the end. A placement with an operator has
the branch as its formula, such as `f(norm(x))`. An operator needs a NumPy truth in the oracle and a form in every
framework that builds it; this table says what it is called, where it is described, and what it learns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from normula.formula.errors import nearest
from normula.spec.role import Role

STREAMS = 4
"""Streams of the hyper-connections, as in both papers."""

Shape = tuple[int, ...]
Parameters = dict[str, tuple[Shape, Role]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """What an operator is called, and the parameters of its four parts.

    Args:
        title, source: for people.
        read, write: from the width D and the number of the step (from 0) to the parameters of one step.
        end: from D to the parameters of the last reading.
    """

    title: str
    source: str
    read: Callable[[int, int], Parameters]
    write: Callable[[int, int], Parameters]
    end: Callable[[int], Parameters]


def _constant(shape: Shape, start: float) -> tuple[Shape, Role]:
    return shape, Role(kind="constant", start=start)


def _nothing(*_: int) -> Parameters:
    return {}


def _hyper_read(width: int, step: int) -> Parameters:
    """Reads one stream at the start: stream k mod n at step k."""
    return {"shares": ((STREAMS,), Role(kind="unit", start=float(step % STREAMS)))}


def _hyper_write(width: int, step: int) -> Parameters:
    """Adds to every stream, and mixes nothing, at the start."""
    return {"mix": ((STREAMS, STREAMS), Role(kind="unit", start=0.0)), "branch": _constant((STREAMS,), 1.0)}


def _manifold(rows: int) -> Callable[[int, int], Parameters]:
    def parameters(width: int, step: int) -> Parameters:
        matrix = ((rows, STREAMS * width), Role(kind="matrix"))
        return {"theta": matrix, "alpha": _constant((), 0.01), "bias": _constant((rows,), 0.0)}

    return parameters


def _manifold_write(width: int, step: int) -> Parameters:
    post, mix = _manifold(STREAMS)(width, step), _manifold(STREAMS * STREAMS)(width, step)
    return {f"post_{name}": value for name, value in post.items()} | {
        f"mix_{name}": value for name, value in mix.items()
    }


def _query(width: int, *_: int) -> Parameters:
    return {"query": _constant((width,), 0.0)}


OPERATORS: Mapping[str, Operator] = {
    "hyper-connections": Operator(
        title="hyper-connections, static, four streams",
        source="Zhu et al., Hyper-Connections, 2025, arXiv 2409.19606",
        read=_hyper_read,
        write=_hyper_write,
        end=_nothing,
    ),
    "mhc": Operator(
        title="manifold-constrained hyper-connections, four streams",
        source="Xie et al., mHC: Manifold-Constrained Hyper-Connections, 2025, arXiv 2512.24880",
        read=_manifold(STREAMS),
        write=_manifold_write,
        end=_nothing,
    ),
    "attention-residuals": Operator(
        title="attention over all earlier outputs",
        source="Kimi Team, Attention Residuals, 2026, arXiv 2603.15031",
        read=_query,
        write=_nothing,
        end=_query,
    ),
}


def operator(name: str) -> Operator:
    """An operator by its name.

    Raises:
        ValueError: no operator is called so.
    """
    if name not in OPERATORS:
        raise ValueError(f"no operator is called {name!r}{nearest(name, OPERATORS)}; they are {', '.join(OPERATORS)}")
    return OPERATORS[name]
