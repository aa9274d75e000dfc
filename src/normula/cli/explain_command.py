"""What a placement or a formula does: its drawing, skip path, parameters, paper and advice."""

from __future__ import annotations

import argparse
import json

from normula.cli.options import json_option
from normula.explain import explain


def arguments(parser: argparse.ArgumentParser) -> None:
    """The placement."""
    parser.add_argument("placement", metavar="NAME_OR_FORMULA", help="such as pre, or 'x + f(norm(x))'")
    parser.add_argument("--svg", metavar="FILE", help="write the drawing to a file as SVG")
    json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Print the explanation."""
    found = explain(options.placement)
    if options.svg:
        from normula.report import check_writable, write

        check_writable(options.svg)
        write(found.placement.formula.svg(), options.svg)
    print(json.dumps(found.to_dict(), indent=1, ensure_ascii=False) if options.json else found)
    return 0
