"""Checkpoints that know their formula, and load into no other.

save stamps a model's weights, or with --weights those of a file that has no stamp yet; load says whether FILE goes into
MODEL, and refuses under another formula; verify says whether MODEL is what FILE says; check says what a file without a
stamp was trained with; show prints the stamp. MODEL is hf:NAME, timm:NAME or package.module:factory.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from normula.cli.options import json_option

USES = {
    "save": ("model", "input", "weights", "dtype"),
    "load": ("model", "input", "allow", "allow_missing"),
    "verify": ("model", "input"),
    "check": ("model", "input", "batch"),
    "show": (),
}
"""What can be asked for, each with the options that mean something to it."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What to do, the checkpoint, the model."""
    add = parser.add_argument
    add("action", metavar="ACTION", choices=list(USES), help=", ".join(USES))
    add("file", metavar="FILE", help="a .safetensors file, an index of shards, or a folder with either")
    add("--model", metavar="MODEL", help="such as hf:FOLDER, mine.models:make")
    add("--input", action="append", default=[], metavar="NAME=SHAPE", help="an example input, such as input_ids=2x8")
    add("--allow", action="store_true", help="load under another formula all the same; what is let through is printed")
    add("--allow-missing", action="append", default=[], metavar="PATTERN", help="tensors that may be missing: 'head.*'")
    add("--weights", metavar="FILE", help="of save: stamp these weights, which have no stamp, as MODEL's")
    add("--dtype", metavar="DTYPE", help="of save: of the numbers in the file, such as bfloat16")
    add("--batch", metavar="FILE", help="of check: a .safetensors file with what the model was trained on, by name")
    json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Do it and print; a refusal is one line and exit code 2."""
    _refuse_idle(options)
    try:
        said, record = {"save": _save, "load": _load, "verify": _verify, "check": _check, "show": _show}[
            options.action
        ](options)
    except FileNotFoundError as error:
        raise ValueError(str(error)) from None
    if options.json:
        print(json.dumps(record, indent=1))
    else:
        print("\n".join(said))
    return 0


def _refuse_idle(options: argparse.Namespace) -> None:
    """Refuse options that would have no effect."""
    uses = USES[options.action]
    every = dict.fromkeys(name for names in USES.values() for name in names)
    if idle := [f"--{name.replace('_', '-')}" for name in every if getattr(options, name) and name not in uses]:
        raise ValueError(f"{', '.join(idle)} would have no effect on {options.action}")
    if "model" in uses and not options.model:
        raise ValueError(f"{options.action} needs a model: --model hf:FOLDER, or --model package.module:factory")


def _save(options: argparse.Namespace) -> Any:
    from normula import guard
    from normula.record.base import to_dict

    model, example = _model(options)
    if options.weights:
        guard.put_unstamped(model, options.weights, example)
    stamp = guard.save(model, options.file, example, dtype=options.dtype)
    proofs = ", ".join(dict.fromkeys(stage.proof for stage in stamp.stages))
    return [f"saved {options.file}", f"  {stamp.formula}" + (f"   ({proofs})" if proofs else "")], to_dict(stamp)


def _load(options: argparse.Namespace) -> Any:
    from normula import guard

    model, example = _model_for(options)
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is let through is printed below
        found = guard.load(model, options.file, example, allow=options.allow, allow_missing=options.allow_missing)
    return _loaded(found, f"{options.file} goes into {options.model}")


def _verify(options: argparse.Namespace) -> Any:
    from normula import guard

    model, example = _model_for(options)
    return _loaded(guard.verify(model, options.file, example), f"{options.model} is what {options.file} says")


def _loaded(found: Any, first: str) -> Any:
    lines = [first, f"  {found.formula}"]
    lines += [f"  let through: {word}" for word in found.allowed] + [f"  note: {word}" for word in found.notes]
    record = {"where": found.where, "formula": found.formula, "allowed": found.allowed, "notes": found.notes}
    return lines, record


def _check(options: argparse.Namespace) -> Any:
    from normula import guard
    from normula.record.base import to_dict
    from normula.record.checkpoint import open_checkpoint
    from normula.record.weights import read_arrays

    open_checkpoint(options.file)  # what is wrong with the file is said before a model is made
    model, example = _model(options)
    batch = read_arrays(options.batch) if options.batch else None
    found = guard.check(options.file, model, example, batch=batch)
    sure = {
        "stamp": "as its stamp says",
        "tensors": "as its tensors show",
        "behaviour": "as its behaviour shows",
        "no": "",
    }[found.sure]
    lines = [f"{options.file} was trained with {found.formula}, {sure}" if found.formula else "this cannot be told"]
    lines += [f"  {reason}" for reason in found.reasons]
    for one in found.candidates:
        loss = f"   loss {one.loss_nats:.4f} nats" if one.loss_nats is not None else ""
        lines.append(f"  {'fits' if one.fits else 'does not fit':12}  {one.name}: {one.formula}{loss}")
    return lines, to_dict(found)


def _show(options: argparse.Namespace) -> Any:
    from normula import guard
    from normula.record.base import to_dict

    stamp = guard.inspect(options.file)
    lines = [stamp.formula]
    for norm in stamp.norms:
        rounded = f"  rounded {norm.rounded}" if norm.rounded else ""
        what = f"{norm.kind:10} eps {norm.eps:.3g}  axes {list(norm.axes)}{rounded}"
        lines.append(f"  {norm.site:14} {what}  {norm.path}")
    return lines, to_dict(stamp)


def _model_for(options: argparse.Namespace) -> tuple[Any, Any]:
    """The model that a checkpoint is held against; what it is run with stands in the stamp, and is not guessed."""
    from normula.framework import room
    from normula.guard.saving import stamp_in, unstamped
    from normula.record.checkpoint import open_checkpoint

    file = open_checkpoint(options.file)
    stamp = stamp_in(file)
    if stamp is None and not (file.about or {}).get("formula"):
        raise ValueError(unstamped(file))
    if options.input or stamp is None or stamp.inputs is None:
        return _model(options)
    found = room("torch").sources.from_factory(options.model)
    return _model(options) if found is None else (found[0].eval(), None)


def _model(options: argparse.Namespace) -> tuple[Any, Any]:
    """The model that is named, with its own weights, and the arguments of its forward."""
    from normula.cli.models import source_of

    source = source_of(options.model, options.input)
    if source.weighed is not None:
        source = source.weighed()
    if not hasattr(source.model, "parameters") or any(one.is_meta for one in source.model.parameters()):
        raise ValueError(
            f"{options.model} has no weights to hold a checkpoint against: it is a program, or too large to be made "
            "here. Pass a factory as package.module:function"
        )
    if source.args and source.kwargs:
        import inspect

        bound = inspect.signature(source.model.forward).bind(*source.args, **source.kwargs)
        return source.model, dict(bound.arguments)
    return source.model, source.kwargs or source.args
