"""Here lives the SVG of a page: matplotlib's output made fit for it, and the drawings of a record, checked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from xml.etree import ElementTree as ET

from normula.report.theme import COLOURS

PAINTS: Final = {name: f"#a0{i:02x}0d" for i, name in enumerate(COLOURS)}
"""What matplotlib draws in place of each colour: a hexadecimal number that means nothing else."""
CLASS: Final = "class-"
"""An artist with such a gid gets the rest of it as its class."""

_NAMES = {paint: name for name, paint in PAINTS.items()}
_FRACTION = re.compile(r"-?\d+\.\d+")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_STANDING = re.compile(r"rotate\(-?0(\.0+)? ")
_DROPPED = ("font-family", "stroke-dashoffset", "stroke-linejoin", "stroke-linecap")

_ELEMENTS = frozenset(("svg", "title", "desc", "style", "g", "rect", "path", "circle", "line", "text", "tspan"))
_ATTRIBUTES = re.compile(
    r"(class|role|width|height|viewBox|font-(family|size|weight|style)|text-anchor|fill|stroke(-[a-z]+)?|opacity"
    r"|fill-opacity|d|x|y|x1|x2|y1|y2|dx|dy|cx|cy|r|rx|ry|points|transform|data-[a-z-]+)"
)
_LOADS = re.compile(r"url\s*\(|@import|expression|javascript|\\", re.IGNORECASE)


class Hover(NamedTuple):
    """A place of a chart that tells more: a rectangle in pixels, from the lower left, and what it tells."""

    x: float
    y: float
    width: float
    height: float
    text: str


def chart_svg(raw: str, key: str, title: str, description: str, hovers: Sequence[Hover] = ()) -> str:
    """Matplotlib's SVG for a page: colours as custom properties, the page's font, ids of its own, and a description."""
    root = ET.fromstring(raw)
    for part in root.iter():
        part.tag = part.tag.partition("}")[2] or part.tag
        part.attrib = {name.partition("}")[2] or name: value for name, value in part.attrib.items()}
        part.tail = None
        part.text = part.text if part.tag == "text" else None
    for part in root.findall("metadata"):
        root.remove(part)
    for part in root.findall("defs"):
        for style in part.findall("style"):  # it would speak for the whole page
            part.remove(style)
    used = [name for part in root.iter() for name in _references(part)]
    names = {name: f"{key}-{i}" for i, name in enumerate(dict.fromkeys(used))}
    for part in root.iter():
        _tidy(part, names)
    _flatten(root)
    root.attrib = {
        "class": "chart",
        "viewBox": root.get("viewBox", ""),
        "role": "img",
        "aria-labelledby": f"{key}-title",
        "aria-describedby": f"{key}-desc",
    }
    root.extend(_hovered(one, float(root.attrib["viewBox"].split()[3])) for one in hovers)
    for place, (tag, text) in enumerate((("title", title), ("desc", description))):
        element = ET.Element(tag, {"id": f"{key}-{tag}"})
        element.text = text
        root.insert(place, element)
    return ET.tostring(root, encoding="unicode")


def drawing_svg(text: str) -> str | None:
    """A record's drawing as it may stand in a page; None where it is none, or would load or run something."""
    if "<!" in text or "<?" in text:  # neither comments nor definitions of entities belong in a drawing
        return None
    try:
        root = ET.fromstring(text)
    except ET.ParseError:
        return None
    for part in root.iter():
        part.tag = part.tag.partition("}")[2] or part.tag
        if part.tag not in _ELEMENTS or not all(map(_ATTRIBUTES.fullmatch, part.attrib)):
            return None
        if any(
            _LOADS.search(value) for value in (*part.attrib.values(), part.text or "" if part.tag == "style" else "")
        ):
            return None
        if part.tag == "style" and "<" in (part.text or ""):
            return None
    return ET.tostring(root, encoding="unicode") if root.tag == "svg" else None


def _hovered(one: Hover, height: float) -> ET.Element:
    place = {"x": one.x, "y": height - one.y - one.height, "width": one.width, "height": one.height}
    found = ET.Element(
        "rect", {"fill": "none", "pointer-events": "all", **{name: f"{at:.1f}" for name, at in place.items()}}
    )
    ET.SubElement(found, "title").text = one.text
    return found


def _references(part: ET.Element) -> Iterable[str]:
    if part.get("href", "").startswith("#"):
        yield part.attrib["href"][1:]
    yield from _REFERENCE.findall(part.get("clip-path", ""))


def _tidy(part: ET.Element, names: dict[str, str]) -> None:
    """Shorter, with the page's colours and with ids that no other chart has."""
    name = part.attrib.pop("id", "")
    if name.startswith(CLASS):
        part.set("class", name.removeprefix(CLASS))
    elif name in names:
        part.set("id", names[name])
    if "href" in part.attrib:
        part.set("href", f"#{names[part.attrib['href'][1:]]}")
    if "clip-path" in part.attrib:
        part.set("clip-path", _REFERENCE.sub(lambda found: f"url(#{names[found[1]]})", part.attrib["clip-path"]))
    if "style" in part.attrib:
        declarations = [one.strip() for one in part.attrib["style"].split(";")]
        kept = [one for one in declarations if one and not one.startswith(_DROPPED)]
        part.set("style", ";".join(_painted(one) for one in kept))
    if _STANDING.match(part.get("transform", "")):
        del part.attrib["transform"]
    for attribute in ("d", "x", "y", "width", "height"):
        if attribute in part.attrib:
            text = _FRACTION.sub(lambda found: f"{float(found[0]):.1f}".removesuffix(".0"), part.attrib[attribute])
            part.set(attribute, " ".join(text.split()))


def _painted(declaration: str) -> str:
    property_, _, value = declaration.partition(": ")
    return f"{property_}:var(--{_NAMES[value]})" if value in _NAMES else f"{property_}:{value}"


def _flatten(part: ET.Element) -> None:
    """Take out groups that say nothing."""
    children: list[ET.Element] = []
    for child in part:
        _flatten(child)
        children += list(child) if child.tag == "g" and not child.attrib else [child]
    part[:] = children
