"""A norm on the branch's output alone: what it does to gradients, and what norms on queries and keys do about it."""

from __future__ import annotations

from math import exp, log
from statistics import fmean

from normula.claims.claim import Claim, Measured
from normula.claims.probe import BLOCKS, coarse, language, near, start
from normula.claims.schemes import SCHEMES
from normula.record import Figure, Series

KNOWN: dict[str, tuple[float | None, ...]] = {
    "output norm, Xavier": (0.216, 3.61, 1.6e4),
    "with query-key norm": (0.073, 0.064, 0.065),
    "output norm, normal 0.02": (None, None, None),
}
"""Input gradients from an independent implementation, three seeds; None where it says only that nothing explodes."""
RATIOS = dict(zip(KNOWN, ("7.4e4", "0.89", ""), strict=True))


def measure() -> Measured:
    """The gradient at the input of three stacks at three depths."""
    stacks = {
        "output norm, Xavier": ("output norm", "xavier", 2),
        "with query-key norm": ("output and query-key norm", "xavier", 1),
        "output norm, normal 0.02": ("output norm", "normal", 1),
    }
    found = {}
    for name, (scheme, init, seeds) in stacks.items():
        specs = [[language(SCHEMES[scheme], depth, init=init, seed=seed) for seed in range(seeds)] for depth in BLOCKS]
        found[name] = [exp(fmean(log(start(spec).input_gradient) for spec in each)) for each in specs]
    bare, normed, small = found.values()
    explodes = bare[-1] > 1e3 * bare[0]
    cured = all(near(value, normed[0], 0.3) for value in normed)
    figures = [
        Figure(label=f"{name}: 96 to 6 blocks", value=coarse(values[-1] / values[0]), expected=RATIOS[name])
        for name, values in found.items()
    ]
    figures += [
        Figure(label=f"{name}: {depth} blocks", value=coarse(value), expected="" if said is None else f"{said:g}")
        for name, values in found.items()
        for depth, value, said in zip(BLOCKS, values, KNOWN[name], strict=True)
    ]
    return Measured(
        verdict="holds" if explodes and cured else "holds in part" if explodes else "does not hold here",
        figures=tuple(figures),
        text="Without a norm before attention, its scores are quadratic in a stream that grows, and the gradient at "
        f"the input is {bare[0]:.2g}, {bare[1]:.1g} and {bare[2]:.0e} at 6, 24 and 96 blocks; at 96 it differs "
        f"several times between seeds. With norms on queries and keys it is {min(normed):.2g} to {max(normed):.2g}. "
        f"Small weights, normal 0.02, do as well ({min(small):.2g} to {max(small):.2g}).",
        series=tuple(Series(label=name, x=BLOCKS, y=tuple(values)) for name, values in found.items()),
        x="blocks",
        y="gradient at the input",
    )


CLAIM = Claim(
    statement="x + norm(f(x)) without norms on queries and keys explodes at initialisation with Xavier weights, and "
    "with them it does not.",
    source="OLMo Team, 2 OLMo 2 Furious, 2025, which reports that only the two together help",
    how="A decoder of width 128 at 6, 24 and 96 blocks on random tokens: the gradient of the cross-entropy at the "
    "input, geometric mean over two seeds where it explodes, one seed elsewhere.",
    recorded="holds",
    measure=measure,
)
