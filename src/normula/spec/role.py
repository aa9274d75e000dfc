"""Here lives Role: what an array does in a network, as far as its start depends on it."""

from dataclasses import dataclass
from typing import Literal

RoleName = Literal[
    "matrix", "writer", "bias", "token_embedding", "feature_embedding", "position_embedding", "head", "constant", "unit"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What an array does in the network, as far as its start depends on it.

    `matrix`: a sublayer's matrix (out, in). `writer`: one whose output is added to the residual stream (`o`, `down`).
    `bias`: a sublayer's bias; `inputs` is the number of inputs of its matrix. `token_embedding` (V, D),
    `feature_embedding` (D, P), `position_embedding` (T, D) and `head` (V, D) stand outside the sublayers. `constant`:
    every entry is `start`. `unit`: a vector with a 1 at place `start`, or an identity matrix. `fused`: of a matrix of
    queries, keys or values, the rows that the three have together where they are one matrix.

    >>> Role(kind="constant", start=1.0)
    Role(kind='constant', inputs=None, start=1.0, fused=None)
    """

    kind: RoleName
    inputs: int | None = None
    start: float | None = None
    fused: int | None = None

    def __post_init__(self) -> None:
        if (self.inputs is not None) != (self.kind == "bias"):
            raise ValueError(f"A bias needs `inputs` and no other role takes it; got {self.inputs} for {self.kind}.")
        if (self.start is not None) != (self.kind in ("constant", "unit")):
            raise ValueError(f"A constant needs `start` and no other role takes it; got {self.start} for {self.kind}.")

    @property
    def is_matrix(self) -> bool:
        """Whether it multiplies what goes through the network, and is no table that is looked up."""
        return self.kind in ("matrix", "writer", "feature_embedding", "head")
