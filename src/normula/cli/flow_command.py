"""What a stack does to signal and gradient, by depth: at initialisation, and over the first training steps."""

from __future__ import annotations

import argparse

from normula.cli.options import framework_option, json_option, rates, whole
from normula.cli.progress import progress
from normula.flow import flow
from normula.flow.flow import PROBES
from normula.spec import Spec
from normula.spec.kinds import ACTIVATIONS, INIT_RULES, NORM_KINDS


def arguments(parser: argparse.ArgumentParser) -> None:
    """The stack, the probe, the training steps."""
    add = parser.add_argument
    add("placement", metavar="NAME_OR_FORMULA", help="such as post, or 'norm(x + f(x))'")
    add("--layers", type=whole(1), metavar="L", default=12, help="default 12")
    add("--width", type=whole(1), metavar="D", default=64, help="default 64")
    add("--heads", type=whole(1), metavar="H", default=4, help="default 4")
    add("--norm", choices=list(NORM_KINDS), default="layernorm", help="default layernorm")
    add("--activation", choices=list(ACTIVATIONS), default="gelu", help="default gelu")
    add("--init", choices=list(INIT_RULES), default="xavier", help="default xavier")
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
    json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Measure and print."""
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
    if options.json:
        from normula.record import to_json

        print(to_json(found))
    else:
        from rich.console import Console

        from normula.report.flow_table import print_flow

        print_flow(found, Console())
    return 0
