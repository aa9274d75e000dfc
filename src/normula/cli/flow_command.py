"""What a stack does to signal and gradient, by depth: at initialisation, and over the first training steps.

A model that exists is read first, and measured at the weights that it has: hf:NAME, timm:NAME, package.module:factory
or FILE.pt2, as `normula read` takes them.
"""

from __future__ import annotations

import argparse
import sys

from normula.cli.options import framework_option, json_option, rates, whole
from normula.cli.progress import progress
from normula.flow import flow
from normula.flow.coverage import NOT_SEEN
from normula.flow.flow import PROBES
from normula.record import Flow
from normula.spec import Spec
from normula.spec.kinds import ACTIVATIONS, INIT_RULES, NORM_KINDS

STACK = {
    "layers": 12,
    "width": 64,
    "heads": 4,
    "norm": "layernorm",
    "activation": "gelu",
    "init": "xavier",
    "final": None,
    "steps": 0,
    "lr": None,
    "warmup": None,
    "task": None,
    "framework": "torch",
}
"""The options of a stack that is built, each with its default; a model that is read has its own."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The stack, the probe, the training steps."""
    add = parser.add_argument
    add("placement", metavar="NAME_OR_FORMULA_OR_MODEL", help="such as post, 'norm(x + f(x))', or hf:gpt2")
    add("--input", action="append", default=[], metavar="NAME=SHAPE", help="of a model: input_ids=2x8")
    add("--layers", type=whole(1), metavar="L", default=STACK["layers"], help="default 12")
    add("--width", type=whole(1), metavar="D", default=STACK["width"], help="default 64")
    add("--heads", type=whole(1), metavar="H", default=STACK["heads"], help="default 4")
    add("--norm", choices=list(NORM_KINDS), default=STACK["norm"], help="default layernorm")
    add("--activation", choices=list(ACTIVATIONS), default=STACK["activation"], help="default gelu")
    add("--init", choices=list(INIT_RULES), default=STACK["init"], help="default xavier")
    add(
        "--final",
        metavar="FORMULA",
        help="what leaves the stack, such as 'x' or 'norm(x)'; default the placement's own",
    )
    add("--probe", choices=PROBES, default="random", help="what is differentiated; default random")
    add("--seeds", type=whole(1), metavar="N", default=3, help="default 3")
    add("--steps", type=whole(0), metavar="N", default=0, help="training steps to look at; default 0")
    add("--lr", type=rates, metavar="RATE", help="of the training; default 1e-3")
    add("--warmup", type=whole(0), metavar="STEPS", help="of the training; default 0")
    add("--task", choices=("text", "copy"), help="what to train on; default text")
    framework_option(parser)
    add("--draws", type=whole(0), metavar="N", default=0, help="of a model: passes in training mode; default 0")
    add("--html", metavar="FILE", help="of a model: write a page, with its reading")
    json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Measure and print."""
    if ":" in options.placement or options.placement.endswith(".pt2"):
        return _of_model(options)
    if options.input:
        raise ValueError("--input belongs to a model that is read, such as hf:gpt2; a stack makes its own")
    if options.html:
        raise ValueError(
            "--html is the page of a model that is read, such as hf:gpt2; normula compare makes the page of stacks"
        )
    if options.draws:
        raise ValueError("--draws are passes of a model that is read, such as hf:gpt2, in training mode; give --steps")
    if options.steps == 0 and (options.lr or options.warmup is not None):
        raise ValueError("--lr and --warmup belong to a training run; give --steps too, such as --steps 20")
    if options.lr and len(options.lr) > 1:
        raise ValueError("one learning rate at a time; the race compares several")
    fields = ("placement", "layers", "width", "heads", "norm", "activation", "init", "final")
    spec = Spec(**{name: getattr(options, name) for name in fields})
    with progress("measuring") as report:
        done = iter(range(1, 10**6))
        found = flow(
            spec,
            seeds=options.seeds,
            probe=options.probe,
            task=options.task,
            steps=options.steps,
            lr=options.lr[0] if options.lr else 1e-3,
            warmup=options.warmup or 0,
            framework=options.framework,
            report=lambda: report(next(done), 0, "a pass"),
        )
    return _shown(found, options)


def _of_model(options: argparse.Namespace) -> int:
    """Measure a model that is read; a big one, which holds no weights, in its twin. 1 where some site was not seen."""
    from normula.cli.models import measured, page_of, reading_of, source_of, weights_of

    if unused := [name for name, default in STACK.items() if getattr(options, name) != default]:
        raise ValueError(
            f"{options.placement} is a model that is read and measured as it is; --{', --'.join(unused)} "
            f"{'belongs' if len(unused) == 1 else 'belong'} to stacks that are built"
        )
    if options.probe == "loss":
        raise ValueError("a loss is yours to say, and that is done in Python: nm.read(model, x).flow(loss=...)")
    if options.html:
        from normula.report import check_writable

        check_writable(options.html)
    source = source_of(options.placement, options.input)
    reading = reading_of(source)
    print(f"{source.title}: weights {weights_of(source)}", file=sys.stderr)
    with progress("measuring") as report:
        done = iter(range(1, 10**6))
        found = measured(
            source,
            reading,
            seeds=options.seeds,
            probe=options.probe,
            draws=options.draws,
            report=lambda: report(next(done), options.seeds, "a pass"),
        )
    if options.html:
        from normula.report import write

        write(page_of(source, reading, "flow", options.input, found), options.html)
    _shown(found, options)
    return int(any(finding.kind == NOT_SEEN for finding in found.findings))


def _shown(found: Flow, options: argparse.Namespace) -> int:
    if options.json:
        from normula.record import to_json

        print(to_json(found))
    else:
        from rich.console import Console

        from normula.report.flow_table import print_flow

        print_flow(found, Console())
    return 0
