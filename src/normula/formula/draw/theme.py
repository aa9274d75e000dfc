"""Here live the colours of a drawing: a page's own where it has them, else those of a light or a dark page."""

from __future__ import annotations

from typing import Final

CLASS: Final = "normula-drawing"
"""The class of a drawing; its style speaks of nothing else on a page."""

COLOURS: Final = {
    "paper": ("#ffffff", "#14191f"),
    "ink": ("#1f2933", "#e4e9ef"),
    "skip": ("#1769c9", "#5aa9ff"),
    "norm": ("#ffdc9c", "#6b4604"),
    "norm-edge": ("#b36b00", "#f2ab3c"),
    "sublayer": ("#e3e9f0", "#2d3a47"),
    "sublayer-edge": ("#566b80", "#8ea4ba"),
    "gain": ("#f1d9f7", "#4e2561"),
    "gain-edge": ("#8e38a8", "#d996ee"),
}
"""Each colour on light and on dark; a page sets its own as `--normula-paper`, `--normula-ink` ..."""

FONT: Final = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"

_FILLS: Final = {
    "norm": ("norm", "norm-edge"),
    "sublayer": ("sublayer", "sublayer-edge"),
    "gain": ("gain", "gain-edge"),
    "factor": ("paper", "ink"),
    "stop": ("paper", "ink"),
    "sum": ("paper", "ink"),
}


def style() -> str:
    """The style sheet that stands in every drawing."""
    light, dark = (_variables(dark) for dark in (False, True))
    rules = [
        f".{CLASS}{{{light};color-scheme:light dark;max-width:100%;height:auto}}",
        f"@media(prefers-color-scheme:dark){{.{CLASS}{{{dark}}}}}",
        f".{CLASS} .paper{{fill:var(--n-paper)}}",
        f".{CLASS} text{{fill:var(--n-ink)}}",
        f".{CLASS} .wire{{stroke:var(--n-ink)}}",
        f".{CLASS} .mark{{fill:var(--n-ink)}}",
        f".{CLASS} .wire.skip{{stroke:var(--n-skip)}}",
        f".{CLASS} .mark.skip,.{CLASS} .skip text{{fill:var(--n-skip)}}",
        *(f".{CLASS} .{kind}{{fill:var(--n-{fill});stroke:var(--n-{edge})}}" for kind, (fill, edge) in _FILLS.items()),
    ]
    return f"@supports(color:var(--n)){{{''.join(rules)}}}"  # what knows no variables keeps the colours of `paint`


def paint(kind: str) -> str:
    """Attributes for programs that know no style sheets with variables; the style sheet overrides them."""
    fill, edge = _FILLS[kind]
    return f'fill="{COLOURS[fill][0]}" stroke="{COLOURS[edge][0]}"'


def _variables(dark: bool) -> str:
    return ";".join(f"--n-{name}:var(--normula-{name},{colours[dark]})" for name, colours in COLOURS.items())
