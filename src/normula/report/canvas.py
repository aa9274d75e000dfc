"""Here lives the canvas of a chart: matplotlib without the user's settings, measured in pixels."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import matplotlib
from matplotlib.artist import Artist
from matplotlib.colors import to_hex, to_rgb, to_rgba_array
from matplotlib.figure import Figure

from normula.report.svg import PAINTS, Hover, chart_svg
from normula.report.theme import COLOURS
from normula.report.words import plain

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

WIDTH: Final = 340
"""Of every chart: what a column on a phone has, so that letters keep their size there."""
FONT: Final = 11
MARGIN: Final = 8
"""Around a figure that stands alone, in pixels."""

_CHARACTER: Final = 0.56
"""Width of a character by font size; above that of the usual fonts without serifs."""

_DPI: Final = 72
"""With which a pixel is a point."""
_PAPER_DPI: Final = 300

T = TypeVar("T")
End: TypeAlias = Callable[[Figure, str, str, str, Sequence[Hover]], T]
"""What becomes of a drawn figure: from it, its key, title, description and the places that tell more."""

_ON_LIGHT: Final = {PAINTS[name]: light for name, (light, _) in COLOURS.items()}

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
        figure = Figure(figsize=(WIDTH / _DPI, height / _DPI), dpi=_DPI)
        figure.patch.set_visible(False)
        yield figure


def finish(figure: Figure, key: str, title: str, description: str, hovers: Sequence[Hover] = ()) -> str:
    """What was drawn, as SVG for a page; the places in `hovers` tell more where there is a pointer."""
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return chart_svg(out.getvalue(), key, plain(title), plain(description), hovers)


def raster(figure: Figure, key: str, title: str, description: str, hovers: Sequence[Hover] = ()) -> bytes:
    """What was drawn, as PNG fit for print: on light, below its title."""
    text(figure, 0, figure.get_figheight() * _DPI + MARGIN, title, "ink")
    for artist in figure.findobj(Artist):
        _paint(artist)
    figure.set(facecolor=COLOURS["panel"][0])
    figure.patch.set_visible(True)
    out = io.BytesIO()
    about = {"Title": plain(title), "Description": plain(description), "Software": None}
    edge = MARGIN / _DPI
    figure.savefig(out, format="png", dpi=_PAPER_DPI, metadata=about, bbox_inches="tight", pad_inches=edge)
    return out.getvalue()


def _paint(artist: Artist) -> None:
    """The colours on light in place of those that stand for them, as opaque as those."""
    for name in ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor"):
        get, put = getattr(artist, f"get_{name}", None), getattr(artist, f"set_{name}", None)
        if get is None or put is None:
            continue
        colours = to_rgba_array(get())
        paint = _ON_LIGHT.get(to_hex(colours[0])) if len(colours) else None
        if paint is not None:
            put((*to_rgb(paint), colours[0][3]))


def text(figure: Figure, x: float, y: float, words: str, colour: str, *, ha: str = "left") -> None:
    """A text at a place in pixels from the lower left."""
    at = (x / WIDTH, y / (figure.get_figheight() * _DPI))
    figure.text(*at, plain(words), color=PAINTS[colour], ha=ha, va="baseline", fontsize=FONT)


def text_width(words: str) -> float:
    """About how wide a text is, in pixels."""
    return len(words) * FONT * _CHARACTER
