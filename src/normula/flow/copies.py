"""Layers that hold the same numbers: a stack of copies of one layer, as a deep copy of it gives.

Two drawn matrices of one shape have Frobenius norms that differ in some digit of double precision; those of two copies
do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from normula.record.flow import Finding, WeightFlow


def copies(paths: Sequence[str], weights: Sequence[WeightFlow], sizes: Mapping[str, int]) -> Iterator[Finding]:
    """A finding where layers are copies.

    Args:
        paths: of the layers' modules.
        weights: of the model.
        sizes: how many axes each has, by name.
    """
    held: dict[tuple[tuple[str, float], ...], list[int]] = {}
    for number, path in enumerate(paths, start=1):
        if path and paths.count(path) == 1:
            held.setdefault(_matrices(path, weights, sizes), []).append(number)
    for matrices, numbers in held.items():
        if matrices and len(numbers) > 1:
            which = ", ".join(map(str, numbers[:-1])) + f" and {numbers[-1]}"
            yield Finding(
                kind="layers-alike",
                weight="warning",
                text=f"Layers {which} hold the same numbers in all their {len(matrices)} matrices: they are copies of "
                "one. Draw the weights of each layer anew.",
            )


def _matrices(path: str, weights: Sequence[WeightFlow], sizes: Mapping[str, int]) -> tuple[tuple[str, float], ...]:
    """The matrices in a module, by their names in it, each with its Frobenius norm."""
    named = [(one.name.replace("/", "."), one.norm) for one in weights]
    return tuple(
        (name.removeprefix(f"{path}."), norm)
        for name, norm in named
        if name.startswith(f"{path}.") and sizes.get(name, 0) > 1
    )
