"""Here lives the SVG that stands alone: a page's chart with its colours, font and ground written in."""

from __future__ import annotations

import re
from typing import Final
from xml.etree import ElementTree as ET

from normula.report.canvas import FONT, MARGIN
from normula.report.theme import COLOURS

_VARIABLE: Final = re.compile(r"var\(--([\w-]+)\)")
_GROUND: Final = "panel"


def standalone(chart: str, title: str = "") -> str:
    """The chart as a file of its own, on light, for programs that know neither the page nor custom properties.

    With a title it stands below that, and has a margin.
    """
    root = ET.fromstring(_VARIABLE.sub(lambda found: COLOURS[found[1]][0], chart))
    _, _, width, height = root.get("viewBox", "0 0 340 236").split()
    root.attrib |= {"xmlns": "http://www.w3.org/2000/svg", "width": width, "height": height}
    root.attrib |= {"font-family": "system-ui,-apple-system,'Segoe UI',Roboto,sans-serif", "fill": COLOURS["ink"][0]}
    for part in root.iter():
        if part.get("class") == "halo":
            part.set(
                "style", f"{part.get('style', '')};paint-order:stroke;stroke:{COLOURS[_GROUND][0]};stroke-width:3px"
            )
    ground = ET.Element("rect", {"width": width, "height": height, "fill": COLOURS[_GROUND][0]})
    root.insert(len(root.findall("title") + root.findall("desc")), ground)
    if title:
        _put_below(root, ground, title, float(width), float(height))
    return ET.tostring(root, encoding="unicode") + "\n"


def _put_below(root: ET.Element, ground: ET.Element, title: str, width: float, height: float) -> None:
    """Make room for a margin and for a line with the title, and write that."""
    top = 2 * MARGIN + FONT
    place = {"x": -MARGIN, "y": -top, "width": width + 2 * MARGIN, "height": height + top + MARGIN}
    sizes = {name: f"{value:g}" for name, value in place.items()}
    root.attrib |= {"viewBox": " ".join(sizes.values()), "width": sizes["width"], "height": sizes["height"]}
    ground.attrib |= sizes
    ET.SubElement(root, "text", {"x": "0", "y": f"{-MARGIN}", "font-size": f"{FONT}px"}).text = title
