"""Results of claims made by hand."""

import math

from normula.record import ClaimResult, Figure, Series


def result(name: str = "made-up", **fields: object) -> ClaimResult:
    """A claim that holds; fields say what is different."""
    values: dict[str, object] = {
        "name": name,
        "statement": "With a|b and x_1 * x_2 <script> it [holds].",
        "source": "Nobody, Nothing, 2020",
        "how": "By hand.",
        "verdict": "holds",
        "recorded": "holds",
        "figures": (Figure(label="a number", value=0.123456, expected="0.12"), Figure(label="steps", value=20.0)),
        "text": "It does.",
        "series": (
            Series(label="measured", x=(1.0, 2.0, 3.0), y=(1.0, 4.0, 900.0)),
            Series(label="said", x=(1.0, 2.0, 3.0), y=(1.0, 4.0, 9.0)),
        ),
        "x": "layer",
        "y": "size",
        "seconds": 1.25,
    }
    return ClaimResult(**{**values, **fields})  # type: ignore[arg-type]


def not_finite() -> ClaimResult:
    """What a broken measurement gives."""
    return result(
        "broken",
        verdict="does not hold here",
        figures=tuple(Figure(label=f"n {value}", value=value) for value in (math.nan, math.inf, -math.inf, -0.0)),
        series=(Series(label="gone", x=(1.0, 2.0), y=(math.nan, math.inf)), Series(label="here", x=(1.0,), y=(2.0,))),
    )


def grid() -> ClaimResult:
    """Numbers that are a table: two rows by two columns, one of them empty."""
    return result(
        "a-grid",
        figures=(
            Figure(label="Pre-LN: at 6", value=0.5, expected=".5"),
            Figure(label="Pre-LN: at 96", value=0.25),
            Figure(label="Post-LN: at 6", value=1e-29),
        ),
    )
