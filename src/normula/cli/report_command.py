"""Make the page of a comparison again from the JSON that `normula compare --json` printed."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from normula.cli.options import json_option


def arguments(parser: argparse.ArgumentParser) -> None:
    """The record and the page."""
    parser.add_argument("record", metavar="FILE", help="JSON of a comparison; - for stdin")
    parser.add_argument("--html", metavar="FILE", default="report.html", help="the page; default report.html")
    json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Read, check, write."""
    from normula.record import Comparison, from_json, to_dict
    from normula.report import check_writable, html, write

    check_writable(options.html)
    try:
        text = sys.stdin.read() if options.record == "-" else Path(options.record).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{options.record} cannot be read ({error})") from None
    found = from_json(Comparison, text)
    write(html(found), options.html)
    if options.json:
        print(json.dumps(to_dict(found)))
    print(f"page written to {options.html}", file=sys.stderr)
    return 0
