"""Here lives the canvas of a chart: matplotlib without the user's settings, measured in pixels."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import matplotlib
from matplotlib.figure import Figure

from normula.report.svg import PAINTS, chart_svg
from normula.report.words import plain

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

WIDTH: Final = 340
"""Of every chart: what a column on a phone has, so that letters keep their size there."""
FONT: Final = 11

_CHARACTER: Final = 0.56
"""Width of a character by font size; above that of the usual fonts without serifs."""


_SETTINGS: Final[dict[RcKeyType, object]] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a name may have dollar signs
    "path.simplify_threshold": 0.3,
}


@contextmanager
def canvas(height: float, key: str) -> Iterator[Figure]:
    """A figure whose unit is a pixel, drawn with matplotlib's own settings and none of the user's."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        matplotlib.rcParams["svg.hashsalt"] = key
        figure = Figure(figsize=(WIDTH / 72, height / 72), dpi=72)
        figure.patch.set_visible(False)
        yield figure


def finish(figure: Figure, key: str, title: str, description: str) -> str:
    """What was drawn, as SVG for a page."""
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return chart_svg(out.getvalue(), key, plain(title), plain(description))


def text(figure: Figure, x: float, y: float, words: str, colour: str, *, ha: str = "left") -> None:
    """A text at a place in pixels from the lower left."""
    figure.text(x, y, plain(words), color=PAINTS[colour], ha=ha, va="baseline", fontsize=FONT, transform=None)


def text_width(words: str) -> float:
    """About how wide a text is, in pixels."""
    return len(words) * FONT * _CHARACTER
