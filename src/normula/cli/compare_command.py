"""Placements side by side, from their drawings to a verdict.

They are drawn, measured at initialisation and over the first training steps, and trained against each other
under two rules of initial weights. The page works offline.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from normula.cli.options import flat, framework_option, json_option, rates, whole
from normula.cli.progress import progress
from normula.compare import Settings, compare
from normula.spec.kinds import ACTIVATIONS, INIT_RULES, NORM_KINDS

DEFAULT = Settings()


def arguments(parser: argparse.ArgumentParser) -> None:
    """Placements, the grid, the sizes, the outputs."""
    add = parser.add_argument
    add("placements", nargs="*", default=["pre", "post"], metavar="NAME_OR_FORMULA", help="default: pre post")
    grid = parser.add_argument_group("the race: every combination is run")
    grid.add_argument(
        "--lr", nargs="+", type=rates, metavar="RATE", help="rates, or low:high:count; default 1e-3 3e-3 1e-2"
    )
    grid.add_argument("--warmup", nargs="+", type=whole(0), metavar="STEPS", help="default 0 and a third of the steps")
    grid.add_argument("--init", nargs="+", choices=list(INIT_RULES), help="initial weights; default xavier normal")
    grid.add_argument("--seeds", type=whole(1), metavar="N", help="runs of each combination; default 2")
    grid.add_argument("--steps", type=whole(1), metavar="N", help="updates of each run; default 150")
    grid.add_argument(
        "--data", metavar="FILE", help="a text to learn; default: the sources of Python's standard library"
    )
    sizes = parser.add_argument_group("the models")
    sizes.add_argument("--layers", type=whole(1), metavar="L", help="default 12")
    sizes.add_argument("--width", type=whole(1), metavar="D", help="default 32")
    sizes.add_argument("--heads", type=whole(1), metavar="H", help="default 2")
    sizes.add_argument("--context", type=whole(2), metavar="T", help="tokens that a model sees; default 32")
    sizes.add_argument("--batch", type=whole(1), metavar="B", help="sequences in a batch; default 8")
    sizes.add_argument("--norm", choices=list(NORM_KINDS), help="kind of norm; default layernorm")
    sizes.add_argument("--activation", choices=list(ACTIVATIONS), help="of the MLP; default relu")
    flow = parser.add_argument_group("the measurements at initialisation")
    flow.add_argument("--depths", nargs="+", type=whole(1), metavar="L", help="default 5 10 20 30 40 50")
    flow.add_argument("--flow-width", type=whole(1), metavar="D", help="default 64")
    flow.add_argument("--probe", choices=("random", "sum"), help="what is differentiated; default random")
    flow.add_argument("--flow-steps", type=whole(0), metavar="N", help="training steps to look at; default 20")
    out = parser.add_argument_group("output")
    out.add_argument("--html", metavar="FILE", default="report.html", help="the page; default report.html")
    out.add_argument("--workers", type=whole(1), metavar="N", help="processes; default one a core")
    framework_option(out)
    json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Compare, print the summary, write the page."""
    from rich.console import Console

    from normula.record import to_json
    from normula.report import check_writable, html, terminal, write

    check_writable(options.html)
    settings = Settings(**_chosen(options))
    with progress("comparing") as report:
        found = compare(options.placements, settings, report=report)
    write(html(found), options.html)
    if options.json:
        print(to_json(found))
    else:
        terminal(found, Console())
    print(f"page written to {options.html}", file=sys.stderr)
    return 130 if len(found.trials) < found.planned else 0


def _chosen(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that were given; the others keep their defaults."""
    given: dict[str, Any] = {name: getattr(options, name, None) for name in DEFAULT.to_dict()}
    given = {name: value for name, value in given.items() if value is not None}
    if "steps" in given and "warmup" not in given:
        given["warmup"] = (0, given["steps"] // 3)
    for name in ("warmup", "init", "depths"):
        if name in given:
            given[name] = tuple(dict.fromkeys(given[name]))
    if "lr" in given:
        given["lr"] = flat(given["lr"])
    return given
