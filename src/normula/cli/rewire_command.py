"""Another placement for a model that exists: its norms moved, added or removed, its own code kept; read again as proof.

--fold, --centre, --shift and their kind keep the function exactly: each has a condition that is checked, and is proved
in float64 at random gains and biases.

MODEL is hf:NAME, timm:NAME or package.module:factory, as `normula read` takes them. The plan is printed: each change,
parameters added and removed, and what is preserved. What is not equivalent needs --accept-inexact.

--migrate moves a trained model, one that maps ids to logits, and trains it meanwhile.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from normula.cli.options import json_option, positive, whole

CONVERSIONS = {
    "fold": "fold gains and biases of norms into the linear maps that read them",
    "unfold": "give such norms gains again: what the columns of those maps have in common",
    "centre": "centre what writes to the stream, and make RMSNorms of its LayerNorms",
    "shift": "write Post-LN as n = norm(x); x = n + f(n), with every norm one slot further down",
    "unshift": "the way back",
    "share": "let equal norms of parallel sublayers be one",
    "unshare": "give each sublayer that reads a shared norm one of its own",
    "absorb": "put factors on the skip (DeepNorm's, Keel's, Admin's) into weights",
    "merge": "make one norm of two in succession, such as a redundant final norm",
}
"""The conversions that keep the function, in words."""

OF_MIGRATION = ("task", "data", "steps", "move", "lr", "warmup", "batch")
"""The options of the training that --migrate does."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The model, the wanted placement, what is accepted, where the new model goes."""
    add = parser.add_argument
    add("model", metavar="MODEL", help="such as hf:gpt2, timm:vit_base_patch16_224, mine.models:make")
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--to", metavar="NAME_OR_FORMULA", help="the wanted placement: peri, 'x + norm(f(norm(x)))'")
    for name, words in CONVERSIONS.items():
        wanted.add_argument(f"--{name}", dest="conversion", action="store_const", const=name, help=words)
    add("--untie", action="store_true", help="for --fold and --centre: give a tied head a matrix of its own")
    add("--input", action="append", default=[], metavar="NAME=SHAPE", help="an example input, such as input_ids=2x8")
    add("--dry-run", action="store_true", help="print the plan and change nothing; no weights are needed")
    add("--accept-inexact", action="store_true", help="also where the new model computes something else")
    add("--reinit", metavar="RULE", help="draw all weights anew, for training from scratch: xavier, normal, paper ...")
    add("--seed", type=whole(0), metavar="N", help="of --reinit; of --migrate's batches; default 0")
    add("--out", metavar="FILE", help="write the new weights, with their formula, to a .safetensors file or a folder")
    _migration(parser.add_argument_group("moving a trained model"))
    json_option(parser)


def _migration(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--migrate", metavar="KIND", help="path: by degrees; distil: it learns what the old model says")
    add("--task", metavar="NAME", help="what it is trained on: text, copy, repeat ..., as normula race has them")
    add("--data", nargs="+", metavar="FILE", help="texts, or a folder, for the task text")
    add("--steps", type=whole(1), metavar="N", help="updates in all; default 300")
    add("--move", type=whole(1), metavar="N", help="updates that the move takes; default half of a path, all of distil")
    add("--lr", type=positive, metavar="RATE", help="default 1e-3")
    add("--warmup", type=whole(0), metavar="STEPS", help="default a tenth of the steps")
    add("--batch", type=whole(1), metavar="B", help="sequences in a batch; default 16")


def run(options: argparse.Namespace) -> int:
    """Plan or rewire, and print the plan."""
    from normula.cli.models import source_of
    from normula.record import to_json
    from normula.rewire import plan

    if options.migrate:
        return _run_migration(options)
    unheard = [name for name in OF_MIGRATION if getattr(options, name) is not None]
    if unheard:
        raise ValueError(f"--{unheard[0]} is of the training that --migrate does; give --migrate path, or distil, too")
    if options.conversion:
        return _run_conversion(options)
    if options.untie:
        raise ValueError("--untie belongs to --fold, --unfold and --centre")
    if options.dry_run and (options.out or options.reinit or options.accept_inexact):
        raise ValueError("--dry-run changes nothing; --out, --reinit and --accept-inexact belong to a run without it")
    if options.seed is not None and not options.reinit:
        raise ValueError("--seed is that of the weights that --reinit draws; give --reinit too")
    if options.out and Path(options.out).exists():
        raise ValueError(
            f"{options.out} exists, and new weights would take the place of what is there; name another file"
        )
    source = source_of(options.model, options.input)
    example = _example(source)
    if options.dry_run:
        found = plan(source.model, options.to, example=example)
    else:
        found = _rewired(source, example, options)
    if options.json:
        print(to_json(found))
    else:
        from rich.console import Console

        from normula.report.rewiring import print_plan

        print_plan(found, source.title, Console())
    return 0


def _run_conversion(options: argparse.Namespace) -> int:
    """Convert, or plan it, and print what was done and left."""
    from normula.cli.models import source_of
    from normula.record import to_dict
    from normula.rewire.conversions import conversion, plan

    unheard = [name for name in ("reinit", "accept_inexact") if getattr(options, name)]
    unheard += ["seed"] if options.seed is not None else []
    if unheard or (options.dry_run and options.out):
        said = f"--{unheard[0].replace('_', '-')}" if unheard else "--out"
        raise ValueError(f"{said} would do nothing here: a conversion keeps the function, a dry run writes nothing")
    source = _weighed(source_of(options.model, options.input))
    example = _example(source)
    if options.dry_run:
        found = plan(source.model, options.conversion, example=example, untie=options.untie)
    else:
        new, found = conversion(source.model, options.conversion, example=example, untie=options.untie)
        if options.out:
            _save(new, options.out, example)
    if options.json:
        parts = ("name", "done", "left", "to", "added", "apart", "schema")
        print(json.dumps({name: value for name, value in to_dict(found).items() if name in parts}, indent=1))
    else:
        from rich.console import Console

        from normula.report.conversion import print_conversion

        print_conversion(found, source.title, Console())
    return 0


def _run_migration(options: argparse.Namespace) -> int:
    """Move a trained model, and print what became of its loss."""
    from normula.cli.models import refusing, source_of
    from normula.data import task
    from normula.record import to_json
    from normula.rewire import migrate

    heard = [name for name in ("conversion", "untie", "dry_run", "accept_inexact", "reinit") if getattr(options, name)]
    if heard:
        said = f"--{options.conversion if heard[0] == 'conversion' else heard[0].replace('_', '-')}"
        raise ValueError(
            f"{said} would do nothing here: --migrate trains the model on the way to the placement of --to"
        )
    source = _weighed(source_of(options.model, options.input))
    example = _example(source)
    with refusing(f"{source.title} cannot be moved: its forward or its backward pass raises"):
        new, found = migrate(
            source.model,
            options.to,
            example=example,
            task=task(options.task or "text", options.data),
            recipe=_recipe(options),
            kind=options.migrate,
            move_steps=options.move,
        )
    if options.out:
        _save(new, options.out, example)
    if options.json:
        print(to_json(found))
    else:
        from rich.console import Console

        from normula.report.migration import print_migration

        print_migration(found, source.title, Console())
    return 0


def _recipe(options: argparse.Namespace) -> Any:
    from normula.spec import Recipe

    steps = options.steps or 300
    return Recipe(
        steps=steps,
        lr=options.lr or 1e-3,
        warmup=steps // 10 if options.warmup is None else options.warmup,
        batch=options.batch or 16,
        seed=options.seed or 0,
    )


def _rewired(source: Any, example: Any, options: argparse.Namespace) -> Any:
    from normula.rewire import rewire

    real = _weighed(source)
    example = _example(real)
    new = rewire(
        real.model,
        options.to,
        example=example,
        accept_inexact=options.accept_inexact,
        reinit=options.reinit,
        seed=options.seed or 0,
    )
    if options.out:
        _save(new, options.out, example)
    return new.rewiring


def _weighed(source: Any) -> Any:
    """A source whose model holds weights."""
    if source.weighed is None:
        return source
    print(f"{source.title}: weights random, as its config starts a training", file=sys.stderr)
    return source.weighed()


def _save(new: Any, out: str, example: Any) -> None:
    from normula.guard import save

    save(new, out, example)
    print(f"{out}: written", file=sys.stderr)


def _example(source: Any) -> Any:
    """The arguments of a source's forward."""
    if source.args and source.kwargs:
        raise ValueError("the arguments of the forward are given by place and by name; give all by name, with --input")
    return source.args or source.kwargs
