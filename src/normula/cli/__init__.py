"""The command line: one file a command. Nothing but the command that was asked for is loaded."""

from __future__ import annotations

import argparse
import io
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module

COMMANDS = {
    "list": "the named placements",
    "explain": "what a placement or a formula does: drawing, skip path, paper, advice",
    "read": "the formula of a model that exists, read from what runs",
    "compare": "placements side by side: drawn, measured, trained against each other, with a verdict",
    "race": "placements trained against each other, over a grid: which trains best, and how sure are we",
    "flow": "what a stack does to signal and gradient, by depth",
    "claims": "statements of the literature, each measured, with a verdict",
    "advise": "which placement to take for a model that is described, with the evidence",
    "rewire": "another placement for a model that exists, proved by reading it again",
    "guard": "checkpoints that know their formula: save, load, verify, check",
    "report": "the page, tables and figures of a race; the page of a comparison again",
}
"""The commands, each with the line that --help shows for it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code: 0, 2 for bad usage, 130 after an interrupt."""
    words = list(sys.argv[1:] if argv is None else argv)
    if sys.stdout is None:  # it was closed before the start
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without our signs still gets the result
    try:
        try:
            if words and words[0] in COMMANDS:
                return _run(words[0], words[1:])
            _top().parse_args(words or ["--help"])
        finally:
            sys.stdout.flush()  # what is wrong with stdout shows here, not after the last line of the program
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # the reader of our output has seen enough
            return 0
        print(f"normula: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("normula: interrupted", file=sys.stderr)
        return 130
    return 0


def _run(name: str, words: Sequence[str]) -> int:
    command = import_module(f"normula.cli.{name}_command")
    parser = argparse.ArgumentParser(prog=f"normula {name}", description=command.__doc__, allow_abbrev=False)
    command.arguments(parser)
    said: set[str] = set()

    def say_once(message: Warning | str, *_: object, **__: object) -> None:
        if str(message) not in said:
            said.add(str(message))
            print(f"normula {name}: warning: {message}", file=sys.stderr)

    try:
        with warnings.catch_warnings():
            warnings.showwarning = say_once
            code = command.run(parser.parse_args(words))
    except (ValueError, ImportError, ChildProcessError) as error:
        print(f"normula {name}: {error}", file=sys.stderr)
        return 2
    assert isinstance(code, int)
    return code


def _top() -> argparse.ArgumentParser:
    lines = "\n".join(f"  {name:<10} {text}" for name, text in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="normula",
        usage="normula COMMAND [ARGS]",
        description="Where does a network normalise, what does that do to training, and what should I use?",
        epilog=f"commands:\n{lines}\n\nnormula COMMAND --help tells more; every command takes --json.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    parser.add_argument("command", type=_known, help=argparse.SUPPRESS)
    return parser


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from normula import __version__

        print(f"normula {__version__}")
        parser.exit()


def _known(word: str) -> str:
    from normula.formula.errors import nearest

    raise argparse.ArgumentTypeError(f"no command is called {word!r}{nearest(word, COMMANDS)}; see normula --help")
