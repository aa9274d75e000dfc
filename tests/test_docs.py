"""Every Python block of the README and the docs runs, in order, one namespace a page."""

import doctest
import re
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^(?P<indent>[ \t]*)(?P<ticks>`{3,}|~{3,})[ \t]*(?P<info>[^`\n]*)$")


class Block(NamedTuple):
    info: str
    line: int
    code: str


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page: what stands behind the opening fence, the line of that fence, the text inside."""
    found: list[Block] = []
    opened: tuple[str, str, int] | None = None
    inside: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        fence = FENCE.match(line)
        if opened is None:
            if fence:
                opened, inside = (fence["ticks"], fence["info"].strip(), number), []
        elif fence and not fence["info"] and fence["ticks"].startswith(opened[0]):
            found.append(Block(opened[1], opened[2], textwrap.dedent("\n".join(inside)) + "\n"))
            opened = None
        else:
            inside.append(line)
    assert opened is None, f"the fence opened in line {opened and opened[2]} is never closed"
    return found


def run_page(path: Path) -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(path.read_text(encoding="utf-8")):
        language, *rest = re.split(r"[\s{},]+", block.info.strip("{}. ")) if block.info else [""]
        if language not in {"py", "python", "python3", "pycon"}:
            continue
        assert not rest, f"{path.name}:{block.line}: a Python block takes no '{' '.join(rest)}', it always runs"
        if language == "pycon" or block.code.lstrip().startswith(">>>"):
            session = doctest.DocTestParser().get_doctest(block.code, namespace, path.name, str(path), block.line)
            flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            runner = doctest.DebugRunner(optionflags=flags)
            runner.run(session, clear_globs=False)
            namespace.update(session.globs)
        else:
            exec(compile("\n" * block.line + block.code, path, "exec"), namespace)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_python_block_of_a_page_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(path)


def test_blocks_of_a_page_share_one_namespace(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python\na = 1\n```\n\n```pycon\n>>> b = a + 1\n>>> b\n2\n```\n\n- item\n\n  ```py\n  assert b == 2\n  ```\n"
    )
    run_page(page)


@pytest.mark.negative
@pytest.mark.parametrize(
    ("page", "error"),
    [
        ("```python\nassert False\n```\n", AssertionError),
        ("```python\n>>> 1 + 1\n3\n```\n", doctest.DocTestFailure),
        ("```python no-run\nassert True\n```\n", AssertionError),
        ("```python\nassert True\n", AssertionError),
    ],
    ids=["failing code", "wrong output", "excused block", "open fence"],
)
def test_a_page_that_lies_fails(page: str, error: type[Exception], tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(page)
    with pytest.raises(error):
        run_page(path)


@pytest.mark.negative
def test_shell_blocks_do_not_run(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```bash\nexit 1\n```\n\n```\nassert False\n```\n")
    run_page(page)
