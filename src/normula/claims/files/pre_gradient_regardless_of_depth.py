"""Whether Pre-LN's gradient depends on the depth: its direct path does not, the rest does."""

from __future__ import annotations

from normula.claims.claim import Claim, Measured
from normula.claims.probe import BLOCKS, last_down, near
from normula.flow import flow
from normula.record import Figure, Pass, Series
from normula.spec import Spec

TOLERANCE = 0.2
"""More than the seeds' spread: a gradient that changes by less with 16 times the depth is kept."""


def measure() -> Measured:
    """Gradients at the input and of the last matrix, at three depths, with the final norm and without."""
    without, with_norm = (
        [flow(Spec(placement="x + f(norm(x))", final=final, layers=depth), seeds=1).passes[0] for depth in BLOCKS]
        for final in ("x", "norm(x)")
    )
    direct = [one.skip_gradient / one.output_gradient for one in without]
    whole = [one.input_gradient / one.output_gradient for one in without]
    closed = [one.input_gradient / one.output_gradient for one in with_norm]
    last = [_last(one, depth) for one, depth in zip(with_norm, BLOCKS, strict=True)]
    kept = {name: near(v[-1], v[0], TOLERANCE) for name, v in (("direct", direct), ("whole", whole), ("last", last))}
    rows = {
        "at the input, no final norm": whole,
        "at the input, direct path alone": direct,
        "at the input, final norm": closed,
        "of the last matrix, final norm": last,
    }
    every = all(kept.values())
    return Measured(
        verdict="holds" if every else "holds in part" if kept["direct"] else "does not hold here",
        figures=(
            *(Figure(label=f"{n}: 96 to 6 layers", value=row[-1] / row[0], expected="1") for n, row in rows.items()),
            *(
                Figure(label=f"{name}: {depth} layers", value=value)
                for name, row in rows.items()
                for depth, value in zip(BLOCKS, row, strict=True)
            ),
        ),
        text="The direct path is kept exactly. The whole gradient at the input is not: without a final norm it "
        f"grows from {whole[0]:.2g} to {whole[-1]:.2g} of what is sent into the output, because the branches add to "
        f"it. The final norm hides that at the input ({closed[0]:.2g} to {closed[-1]:.2g}) and makes each matrix's "
        f"gradient fall, here from {last[0]:.2g} to {last[-1]:.2g} (1/sqrt(L) would be {last[0] / 4:.2g}).",
        series=tuple(
            Series(label=label, x=BLOCKS, y=tuple(row))
            for label, row in zip(("input, open", "direct path", "input", "last matrix"), rows.values(), strict=True)
        ),
        x="layers",
        y="gradient over that of the output",
    )


def _last(one: Pass, depth: int) -> float:
    name = last_down(Spec(layers=depth))
    return next(weight.gradient for weight in one.weights if weight.name == name) / one.output_gradient


CLAIM = Claim(
    statement="Pre-LN keeps the gradient the same, however deep the stack.",
    source="Common in tutorials, as a consequence of the identity on the skip path",
    how="A random projection of the output of stacks of width 64 with Xavier weights at 6, 24 and 96 layers: the "
    "gradient at the input on the direct path and on all paths, and that of the last MLP's second matrix.",
    recorded="holds in part",
    measure=measure,
)
