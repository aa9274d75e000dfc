"""Here live the colours of a page, each on light and on dark, as custom properties of CSS.

Text in any of these stands at 4.5:1 or more on what it is set on (WCAG 2.2, 1.4.3); lines of charts carry
their labels in their own colour, so that the same holds for them.
"""

from __future__ import annotations

from typing import Final

from normula.formula.draw.theme import COLOURS as DRAWING

COLOURS: Final = {
    "page": ("#fbfbf9", "#101419"),
    "panel": ("#ffffff", "#171c23"),
    "ink": ("#1b2430", "#e6eaf0"),
    "soft": ("#54606e", "#a4afbc"),
    "rule": ("#d8dde3", "#333c47"),
    "grid": ("#e8ebef", "#28303a"),
    "accent": ("#1a5fb4", "#7cb7ff"),
    "learned": ("#0f5f3a", "#8fdcb0"),
    "learned-tint": ("#e5f3ea", "#15332a"),
    "stuck": ("#744700", "#f0c674"),
    "stuck-tint": ("#fbeed2", "#3a2d10"),
    "diverged": ("#9b1c1c", "#ffb0a8"),
    "diverged-tint": ("#fbe5e3", "#451d1d"),
    "caution": ("#744700", "#f0c674"),
    "series-1": ("#1b5faa", "#74b4ff"),
    "series-2": ("#b3430a", "#ff9d61"),
    "series-3": ("#00704f", "#4fd0a5"),
    "series-4": ("#8a3c90", "#e49ee8"),
    "series-5": ("#7a5900", "#e3c04e"),
    "series-6": ("#006b7d", "#58cfe0"),
    "series-7": ("#ad2350", "#ff93b2"),
    "series-8": ("#545f6b", "#b6c0cb"),
    "ramp-1": ("#5a7390", "#8094ab"),
    "ramp-2": ("#46678f", "#8ca5c1"),
    "ramp-3": ("#335b90", "#98b7da"),
    "ramp-4": ("#224d89", "#a3c6ed"),
    "ramp-5": ("#153d75", "#bcd8f7"),
    "ramp-6": ("#0a2950", "#dcebfd"),
}
"""`series-*` tell placements apart, `ramp-*` go with training."""

SERIES: Final = tuple(name for name in COLOURS if name.startswith("series-"))
RAMP: Final = tuple(name for name in COLOURS if name.startswith("ramp-"))

TEXT: Final = (
    *((name, ground) for name in ("ink", "soft", "accent", "caution") for ground in ("page", "panel")),
    *((name, "panel") for name in (*SERIES, *RAMP)),
    *((name, f"{name}-tint") for name in ("learned", "stuck", "diverged")),
    *(("ink", f"{name}-tint") for name in ("learned", "stuck", "diverged")),
)
"""Which colour is text on which ground."""

MARKERS: Final = {
    "o": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "s": "M-3.5-3.5h7v7h-7z",
    "^": "M0-4.5l4.5 8h-9z",
    "D": "M0-4.8l4.8 4.8l-4.8 4.8l-4.8-4.8z",
    "v": "M0 4.5l4.5-8h-9z",
    "P": "M-1.5-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
    "X": "M-4.5-2.5l2-2l2.5 2.5l2.5-2.5l2 2l-2.5 2.5l2.5 2.5l-2 2l-2.5-2.5l-2.5 2.5l-2-2l2.5-2.5z",
    "p": "M0-4.6l4.4 3.2l-1.7 5.2h-5.4l-1.7-5.2z",
}
"""Matplotlib's name of each marker, and its path for the key of a chart."""


def variables(dark: bool) -> str:
    """The custom properties of a page on light or on dark; the drawings take theirs from the same."""
    names = {name: colours[dark] for name, colours in COLOURS.items()}
    drawing = {name: colours[dark] for name, colours in DRAWING.items()}
    drawing |= {"paper": names["panel"], "ink": names["ink"]}
    pairs = [*names.items(), *((f"normula-{name}", value) for name, value in drawing.items())]
    return "".join(f"--{name}:{value};" for name, value in pairs)
