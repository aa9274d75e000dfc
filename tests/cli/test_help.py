"""Help, the list of commands and options, and what is loaded for which command."""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module

import pytest

import normula
from normula.cli import COMMANDS
from tests.cli.conftest import NORMULA, Cli


def test_help_lists_every_command(cli: Cli) -> None:
    code, out, err = cli("--help")
    assert (code, err) == (0, "")
    for name, line in COMMANDS.items():
        assert f"{name:<10} {line}" in out
    assert cli() == (0, out, "")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(cli: Cli, command: str) -> None:
    code, out, err = cli(command, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"usage: normula {command}")
    assert "--json" in out
    first_line = (import_module(f"normula.cli.{command}_command").__doc__ or "").splitlines()[0]
    assert first_line[:60] in " ".join(out.split())


def test_the_version_is_printed(cli: Cli) -> None:
    assert cli("--version") == (0, f"normula {normula.__version__}\n", "")


def test_commands_and_their_options_are_the_published_ones(golden: Callable[[str, str], None]) -> None:
    lines = []
    for command in COMMANDS:
        parser = argparse.ArgumentParser(prog=command, add_help=False)
        import_module(f"normula.cli.{command}_command").arguments(parser)
        lines.append(command)
        for action in parser._actions:
            names = ", ".join(action.option_strings) or action.metavar
            choices = f" {{{','.join(map(str, action.choices))}}}" if action.choices else ""
            lines.append(f"  {names}{choices}")
    golden("cli/options.txt", "\n".join(lines) + "\n")


def loaded_by(*words: str) -> set[str]:
    """The packages outside the standard library that a Python of its own has loaded at the end."""
    code = (
        "import atexit, json, sys\n"
        "atexit.register(lambda: print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})), file=sys.stderr))\n"
        "sys.argv[0] = 'normula'\n"
        "exec(sys.argv.pop(1))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1])) - set(sys.stdlib_module_names)


CLI = "from normula.cli import main; sys.exit(main())"


def test_importing_normula_loads_neither_a_framework_nor_numpy() -> None:
    assert not loaded_by("import normula") & {"torch", "jax", "flax", "numpy", "msgspec", "rich"}


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["explain", "--help"], ["list", "--help"]], ids=" ".join)
def test_help_loads_neither_a_framework_nor_numpy(words: list[str]) -> None:
    assert not loaded_by(CLI, *words) & {"torch", "jax", "flax", "numpy", "matplotlib", "jinja2", "rich"}


@pytest.mark.parametrize(
    "words", [["compare", "--help"], ["flow", "--help"], ["list"], ["explain", "pre"]], ids=" ".join
)
def test_no_framework_is_loaded_before_it_is_needed(words: list[str]) -> None:
    assert not loaded_by(CLI, *words) & {"torch", "jax", "flax", "matplotlib"}


def test_help_answers_at_once() -> None:
    """The best of three, as the machine may be busy: a framework alone takes a second."""

    def seconds() -> float:
        start = time.perf_counter()
        subprocess.run([*NORMULA, "--help"], check=True, capture_output=True)
        return time.perf_counter() - start

    assert min(seconds() for _ in range(3)) < 0.3
