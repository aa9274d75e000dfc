"""The catalogue's page and the README's pictures are what the code makes today."""

from pathlib import Path

import pytest

from normula.formula import Formula
from normula.report.catalogue_page import catalogue_page

DOCS = Path(__file__).parent.parent / "docs"
PICTURES = {"post": "norm(x + f(x))", "pre": "x + f(norm(x))", "peri": "x + norm(f(norm(x)))"}


def current(path: Path, text: str, request: pytest.FixtureRequest) -> None:
    """Compare a file of the documentation with what makes it, or write it under --rewrite-golden."""
    if request.config.getoption("--rewrite-golden"):
        path.write_text(text, encoding="utf-8", newline="\n")
    assert path.read_text(encoding="utf-8") == text, f"{path.name} is out of date: ./dev test --rewrite-golden"


@pytest.mark.golden
def test_the_catalogues_page_is_current(request: pytest.FixtureRequest) -> None:
    current(DOCS / "catalogue.md", catalogue_page(), request)


@pytest.mark.golden
@pytest.mark.parametrize("name", PICTURES)
def test_the_readmes_pictures_are_current(name: str, request: pytest.FixtureRequest) -> None:
    current(DOCS / "images" / f"{name}.svg", Formula(PICTURES[name]).svg(), request)
