"""The named placements, each with its formula."""

from __future__ import annotations

import argparse
import json

from normula.catalog import entries
from normula.cli.options import json_option


def arguments(parser: argparse.ArgumentParser) -> None:
    """How to print."""
    parser.add_argument("--markdown", action="store_true", help="print the catalogue's page of the documentation")
    json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Print one line a placement."""
    if options.json and options.markdown:
        raise ValueError("--json and --markdown are two forms of the same list; choose one")
    if options.markdown:
        from normula.report.catalogue_page import catalogue_page

        print(catalogue_page(), end="")
        return 0
    if options.json:
        data = [
            {**entry.placement.to_dict(), "title": entry.title, "aliases": list(entry.aliases)} for entry in entries()
        ]
        print(json.dumps(data, indent=1))
        return 0
    widths = [max(len(text) for text in column) for column in zip(*((e.name, e.title) for e in entries()), strict=True)]
    for entry in entries():
        print(f"{entry.name:<{widths[0]}}  {entry.title:<{widths[1]}}  {entry.placement.formula}")
    return 0
