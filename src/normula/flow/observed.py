"""Here lives Observed: what a framework's room gives of a watched pass, that can be differentiated again and again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from normula.record.stream import Probed


class Observed(Protocol):
    """A watched forward pass of any model.

    Attributes:
        values: of the nodes that were wanted, in double precision.
        edges: the nodes whose gradients can be had.
        unheld: whether some sublayer cannot be held constant.
        own_rules: whether the model has rules of its own for gradients, which are not those of its forward.
    """

    @property
    def values(self) -> Mapping[int, NDArray[Any]]: ...

    @property
    def edges(self) -> frozenset[int]: ...

    @property
    def unheld(self) -> bool: ...

    @property
    def own_rules(self) -> bool: ...

    def probed(self, nodes: Sequence[int], seed: int, probe: str, loss: Callable[[Any], Any] | None) -> Probed:
        """The gradients of some nodes under one probe.

        Raises:
            ValueError: there is nothing to differentiate.
        """
        ...

    def pulled(self, node: int, direction: NDArray[Any], onto: int) -> NDArray[Any] | None:
        """The gradient of a value along a direction with respect to another; None where there is none."""
        ...
