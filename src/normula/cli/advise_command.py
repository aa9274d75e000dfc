"""Which placement to take for a model that is described: a first choice, alternatives, what to leave, with evidence.

The advice comes from a table of rules and is the same each time; a race or a model of your own counts as well.
"""

from __future__ import annotations

import argparse
import re
from typing import Any

from normula.advise import Situation, advise
from normula.advise.situation import WORDS
from normula.cli.options import json_option, whole

UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}


def arguments(parser: argparse.ArgumentParser) -> None:
    """The situation, and the user's own evidence."""
    add = parser.add_argument
    add("--depth", type=whole(1), metavar="L", help="layers")
    add("--width", type=whole(1), metavar="D", help="of the stream")
    add("--params", type=parameters, metavar="N", help="parameters, such as 125M or 7B")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--pretrained", action="store_true", help="from weights that were trained")
    start.add_argument("--from-scratch", action="store_true", help="from initial weights; the default")
    add("--base", metavar="NAME_OR_FORMULA", help="the placement of the weights that were trained")
    add("--tuning", choices=WORDS["tuning"], help="how much rate and warmup can be tuned")
    add("--precision", choices=WORDS["precision"], help="of the products")
    add("--task", choices=WORDS["task"], help="what is learnt")
    add("--run", metavar="RUN", help="a race of your own: its file, or its JSON")
    add("--model", metavar="MODEL", help="the model that was trained, to be read as normula read does")
    add("--input", action="append", default=[], metavar="NAME=SHAPE", help="an example input of that model")
    json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Advise and print."""
    from normula.record import to_json

    if options.from_scratch and (options.base is not None or options.model is not None):
        raise ValueError("a base and a model that was trained go with --pretrained, not with --from-scratch")
    if options.input and options.model is None:
        raise ValueError("--input is an example for --model, and no model is given; leave it out or name one")
    found = advise(
        Situation(
            depth=options.depth,
            width=options.width,
            params=options.params,
            pretrained=options.pretrained or options.base is not None,
            base=options.base,
            tuning=options.tuning,
            precision=options.precision,
            task=options.task,
        ),
        race=_race(options.run) if options.run is not None else None,
        reading=_reading(options.model, options.input) if options.model is not None else None,
        ledger=_ledger(),
    )
    if options.json:
        print(to_json(found))
    else:
        from rich.console import Console

        from normula.report.advice import print_advice

        print_advice(found, Console())
    return 0


def parameters(text: str) -> float:
    """A number of parameters: `125M`, `7B`, `3e8`.

    >>> parameters("7B"), parameters("1.5e8")
    (7000000000.0, 150000000.0)
    """
    found = re.fullmatch(r"([0-9.]+(?:e\+?[0-9]+)?)\s*([kmbt]?)", text.strip().lower())
    try:
        if found:
            return float(found[1]) * UNITS[found[2]]
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"a number of parameters is such as 125M, 7B or 3e8, not {text!r}")


def _race(name: str) -> Any:
    from normula.cli.report_command import read
    from normula.record import Race

    found = read(name)
    if not isinstance(found, Race):
        raise ValueError(f"{name} is a comparison, and advice takes a race; make one with normula race")
    return found


def _reading(model: str, inputs: list[str]) -> Any:
    from normula.cli.models import reading_of, source_of

    return reading_of(source_of(model, inputs))


def _ledger() -> dict[str, tuple[str, str]]:
    from normula.claims import claim, names

    return {name: (found.statement, found.recorded) for name in names() for found in (claim(name),)}
