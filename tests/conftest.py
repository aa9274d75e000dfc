"""Options and fixtures that the tests share. Threads are set in the conftest.py of the root, before any import."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import jaxtyping
import pytest
from hypothesis import settings

GOLDEN = Path(__file__).parent / "golden"

settings.register_profile("default", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("long", deadline=None, derandomize=False, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-golden",
        action="store_true",
        help="write what the tests produce to tests/golden instead of comparing",
    )


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Array annotations go unchecked, as for a user: compilers cannot see through the checks, and they come first."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Undo what a test before this one may have done to torch's threads; loads no torch by itself."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with tests/golden/NAME, or write it there under --rewrite-golden."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--rewrite-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
        elif not path.is_file():
            pytest.fail(f"no tests/golden/{name}: look at the text, then write it with ./dev test --rewrite-golden")
        else:
            assert text == path.read_text(encoding="utf-8")

    return compare
