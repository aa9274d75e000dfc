"""Make the page of a race, its tables and its figures; or the page of a comparison again.

RUN is the file that a race is kept in, or the JSON that normula race or normula compare printed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from normula.cli.options import json_option
from normula.record import Comparison, Race

SQLITE = b"SQLite format 3\0"
"""How the file of a race begins."""

TABLES = ("csv", "parquet", "jsonl")
FOLDERS = ("svg", "png")


def arguments(parser: argparse.ArgumentParser) -> None:
    """The record, the page, the tables, the figures."""
    add = parser.add_argument
    add("record", metavar="RUN", help="the file of a race, or JSON of a race or a comparison; - for JSON on stdin")
    add("--html", metavar="FILE", help="the page; default: RUN.html for a race and report.html for a comparison")
    add("--csv", metavar="FILE", help="every run as a line of CSV")
    add("--parquet", metavar="FILE", help="every run as a row of Parquet, with its curve")
    add("--jsonl", metavar="FILE", help="every run whole, as a line of JSON")
    add("--no-time", action="store_true", help="tables without what is measured in time or memory: the same each time")
    add("--svg", metavar="FOLDER", help="the figures of a race as SVG files")
    add("--png", metavar="FOLDER", help="the figures of a race as PNG files, fit for print")
    json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Read, check, write."""
    from normula.record import to_dict
    from normula.report import check_writable, write

    given = {name: getattr(options, name) for name in ("html", *TABLES, *FOLDERS) if getattr(options, name)}
    if options.no_time and not any(name in given for name in TABLES):
        raise ValueError("--no-time is about tables; name one with --csv, --parquet or --jsonl, or leave it out")
    _check_outputs(options.record, {name: path for name, path in given.items() if name not in FOLDERS})
    for name, path in given.items():
        if name not in FOLDERS:
            check_writable(path)
    found = read(options.record)
    if not given:
        given = {"html": _page_of(options.record) if isinstance(found, Race) else "report.html"}
        check_writable(given["html"])
    for name, path in given.items():
        if name in FOLDERS:
            _write_figures(found, name, _folder(path))
        else:
            write(_MAKERS[name](found, not options.no_time), path)
        print(f"{'page' if name == 'html' else name} written to {path}", file=sys.stderr)
    if options.json:
        print(json.dumps(to_dict(found)))
    return 0


def _check_outputs(record: str, given: Mapping[str, str]) -> None:
    """What is written must go to files of their own, none of them a record.

    Raises:
        ValueError: one is the record that is read, another race, or that of another output.
    """
    taken = {Path(record).resolve(): "the record that is read"} if record != "-" else {}
    for name, path in given.items():
        place = Path(path).resolve()
        said = taken.get(place) or ("a race" if place.is_file() and _is_store(place) else "")
        if said:
            raise ValueError(f"--{name} {path} would write over {said}; give it a file of its own")
        taken[place] = f"what --{name} writes"


def read(name: str) -> Comparison | Race:
    """The race of a file, or what JSON says.

    Raises:
        ValueError: it cannot be read, and why.
    """
    from normula.record import from_json

    try:
        if name != "-" and _is_store(Path(name)):
            from normula.race import read as read_race

            return read_race(name)
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{name} cannot be read ({error})") from None
    return from_json(Race, text) if _is_race(text) else from_json(Comparison, text)


def _is_store(path: Path) -> bool:
    """Whether a file is that of a race, whatever it is called."""
    with path.open("rb") as file:
        return file.read(len(SQLITE)) == SQLITE


def _is_race(text: str) -> bool:
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return False
    return isinstance(data, dict) and "standings" in data


def _page_of(name: str) -> str:
    """Beside the file of the race."""
    path = Path("race" if name == "-" else name)
    return str(path.with_suffix(".html") if path.suffix in (".db", ".json", ".sqlite") else f"{path}.html")


def _page(found: Comparison | Race, time: bool) -> str:
    from normula.report import html

    return html(found)


def _csv(found: Comparison | Race, time: bool) -> str:
    from normula.race.export import csv_text

    return csv_text(found.trials, time=time)


def _jsonl(found: Comparison | Race, time: bool) -> str:
    from normula.race.export import json_lines

    return json_lines(found.trials, time=time)


def _parquet(found: Comparison | Race, time: bool) -> bytes:
    from normula.race.export import parquet

    return parquet(found.trials, time=time)


_MAKERS: dict[str, Callable[[Any, bool], str | bytes]] = {
    "html": _page,
    "csv": _csv,
    "jsonl": _jsonl,
    "parquet": _parquet,
}


def _folder(path: str) -> Path:
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"figures lie in a folder, and {path} cannot be one ({error.strerror}); name another"
        ) from None
    return folder


def _write_figures(found: Comparison | Race, ending: str, folder: Path) -> None:
    from normula.report import write
    from normula.report.race_figures import FILES

    if not isinstance(found, Race):
        raise ValueError(f"--{ending} draws the figures of a race; the page of a comparison has its figures inside")
    for name, what in FILES[ending](found):
        write(what, folder / name)
