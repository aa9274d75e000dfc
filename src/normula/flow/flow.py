"""Measured signal and gradient by depth, of one stack."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from normula.catalog import placement
from normula.data import Task
from normula.data import task as named_task
from normula.flow.findings import findings
from normula.flow.growth import growth
from normula.flow.reading import flow_of, flow_of_reading
from normula.formula import Formula, Placement
from normula.formula.errors import nearest
from normula.framework import framework_of, packages, room
from normula.record import Flow, environment
from normula.record.reading import Reading
from normula.spec import Spec

PROBES = ("random", "loss", "sum")
FIRST_STEPS = (0, 1, 2, 5, 10, 20, 50)
BATCH_AND_TOKENS = (4, 16)


def flow(
    what: Any,
    *args: Any,
    seeds: int | Sequence[int] = 3,
    probe: str = "random",
    batch: int = BATCH_AND_TOKENS[0],
    tokens: int = BATCH_AND_TOKENS[1],
    inputs: Any = None,
    task: str | Task | None = None,
    steps: int | Sequence[int] = 0,
    lr: float = 1e-3,
    warmup: int = 0,
    framework: str | None = None,
    loss: Callable[[Any], Any] | None = None,
    where: str | None = None,
    optimizer: Any = None,
    draws: int = 0,
    report: Callable[[], None] = lambda: None,
) -> Flow:
    """Measure a stack: the stream, its branches, its gradients, the skip path alone, the tokens' cosine.

    Any other model is read first, and its stream is measured at the weights that it has, on the inputs that it is
    given; see `flow_of`. A Reading is measured on the inputs that it was read with, or on given ones.

        >>> import normula as nm
        >>> flow = nm.flow(nm.Spec(placement="pre", layers=4, width=16), seeds=1)
        >>> len(flow.passes[0].steps)
        8

    Args:
        what: a Spec, a placement's name, a formula's text, a model made by `build`, any other that `read` takes, or a
            Reading.
        args: positional arguments of the forward of a model that was not made by `build`.
        seeds: how many, or which; each draws weights, input and probe anew.
        probe: what is differentiated: `random` (a random direction of length 1 in the output), `loss` (the
            cross-entropy on the task's tokens) or `sum` (of the output; blind behind a norm that centres).
        batch, tokens: B and T of the input.
        inputs: (B, T, D) vectors or (B, T) ids instead of random ones; for a model that was not made by `build` its
            argument, a tuple of arguments, or a dictionary of them by name.
        task: `text` or `copy`: real tokens go in; needed for the probe `loss` and for training steps.
        steps: training steps to look at: a number n for 0, 1, 2, 5, 10 ... up to n, or the steps themselves.
        lr, warmup: of the training run.
        framework: `torch` or `flax`; None for a model's own, and for PyTorch.
        loss: of a model that was not made by `build`: from what it returns to one number, instead of a probe.
        where: of such a model with several streams, what the paths of the layers begin with, such as `encoder`.
        optimizer: of such a model in PyTorch: which norm gains, norm biases and residual scales it decays is said too.
        draws: of such a model in PyTorch: so many passes in training mode tell parameters that a gradient never comes
            to from those of layers that are skipped at random.
        report: called after each pass, for a progress bar.

    Returns:
        A record; `findings` says what it shows, and whether the probe was void.

    Raises:
        ValueError: an argument that cannot be; or settings that contradict each other.
    """
    if _is_foreign(what):
        given = (args, inputs, task, steps, framework, (batch, tokens))
        also = {"optimizer": optimizer, "draws": draws, "report": report}
        return _flow_of_foreign(what, *given, seeds=seeds, probe=probe, loss=loss, where=where, **also)
    if args:
        raise ValueError("a stack that is built here takes its input by name; write inputs=...")
    if loss is not None or where is not None:
        raise ValueError("loss and where belong to a model that was not built here; for this one, say probe='loss'")
    if optimizer is not None or draws != 0:
        raise ValueError("optimizer and draws belong to a model that was not built here; leave them out")
    wanted = _training_steps(steps)
    if probe not in PROBES:
        raise ValueError(f"a probe is one of {', '.join(PROBES)}, not {probe!r}{nearest(str(probe), PROBES)}")
    if min(batch, tokens) < 1:
        raise ValueError(f"batch and tokens are at least 1, not {batch!r} and {tokens!r}")
    chosen = _seeds(seeds)
    framework = framework_of(what) if framework is None else framework
    frame = room(framework)
    trains = max(wanted) > 0
    if task is None and (trains or probe == "loss"):
        task = "text"
    if task is not None and inputs is not None:
        raise ValueError("a task gives its own input; leave out one of task and inputs")
    data = named_task(task) if isinstance(task, str) else task
    is_model = isinstance(what, frame.Model)
    if is_model and trains:
        raise ValueError("training steps are measured from a spec, so that the model stays as it is; give its spec")
    spec = what.spec if is_model else _for_task(_spec(what), data)
    if spec.encoder is not None:
        raise ValueError("flow measures one stack, and this spec has an encoder too; give the spec of one side alone")
    if data is not None:
        _check_task(spec, data)
    if spec.placed.operator is not None:
        raise ValueError(f"{spec.placed.name} holds several streams in a registered operator; flow measures one stream")
    _check_input(spec, inputs)
    found = frame.passes(
        what if is_model else spec,
        seeds=chosen,
        probe=probe,
        batch=batch,
        tokens=tokens,
        inputs=inputs,
        task=data,
        training_steps=wanted,
        lr=lr,
        warmup=warmup,
        report=report,
    )
    at_start = tuple(one for one in found if one.training_step == 0)
    return Flow(
        name=spec.placed.name,
        spec=spec.to_dict(),
        probe=probe,
        passes=found,
        growth=growth(at_start),
        findings=findings(found, spec, probe, max(wanted)),
        environment=environment(*packages(framework)),
    )


def _is_foreign(what: Any) -> bool:
    """Whether something is a model, or was read from one, that is not measured by its spec."""
    if isinstance(what, Reading):
        return True
    if isinstance(what, str | Spec | Formula | Placement | type):
        return False
    framework = framework_of(what)
    return callable(what) and (framework is None or not isinstance(what, room(framework).Model))


def _flow_of_foreign(
    what: Any,
    args: tuple[Any, ...],
    inputs: Any,
    task: Any,
    steps: int | Sequence[int],
    framework: str | None,
    sizes: tuple[int, int],
    *,
    seeds: int | Sequence[int],
    probe: str,
    loss: Callable[[Any], Any] | None,
    where: str | None,
    **also: Any,
) -> Flow:
    """A model that was not built here, or a reading; what only a built stack can have is refused.

    Raises:
        ValueError: such a setting, or no inputs.
    """
    if task is not None or steps != 0:
        raise ValueError("a task and training steps need a spec; a model that was not built here is measured as it is")
    if framework not in (None, framework_of(what)):
        raise ValueError(f"a model that exists has a framework already; leave out framework={framework!r}")
    if sizes != BATCH_AND_TOKENS:
        raise ValueError(
            "the inputs of a model that was not built here say how many they are; leave out batch and tokens"
        )
    if probe not in PROBES:
        raise ValueError(f"a probe is one of {', '.join(PROBES)}, not {probe!r}{nearest(str(probe), PROBES)}")
    if (probe == "loss") > (loss is not None):
        raise ValueError(
            "the loss of a model that was not built here is yours; give loss=, from what it returns to a number"
        )
    if loss is not None and probe == "sum":
        raise ValueError("what is differentiated is either the loss or the probe 'sum'; leave out one of them")
    is_reading = isinstance(what, Reading)
    if (args and inputs is not None) or (not args and inputs is None and not is_reading):
        raise ValueError(
            "a model that was not built here needs inputs of its forward, once: flow(model, x), or by name "
            "flow(model, inputs={'input_ids': ids})"
        )
    named = dict(inputs) if isinstance(inputs, Mapping) else {}
    if inputs is not None and not named:
        args = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
    measure: Callable[..., Flow] = flow_of_reading if is_reading else flow_of
    return measure(what, args, named, seeds=_seeds(seeds), probe=probe, loss=loss, where=where, **also)


def _spec(what: Any) -> Spec:
    if isinstance(what, Spec):
        return what
    if isinstance(what, str | Formula | Placement):
        return Spec(placement=placement(what))
    raise ValueError(f"flow takes a Spec, a placement, a formula, a model or its Reading, not {type(what).__name__}")


def _for_task(spec: Spec, data: Task | None) -> Spec:
    """The spec as the task needs it, where it says nothing of tokens itself."""
    if data is None or spec.embeds:
        return spec
    return replace(
        spec,
        vocab=data.vocab,
        features=data.features,
        classes=data.classes,
        causal=data.causal,
        context=data.context,
    )


def _check_task(spec: Spec, data: Task) -> None:
    for name, what in (("vocab", "symbols"), ("features", "values a token"), ("classes", "classes")):
        own, wanted = getattr(spec, name), getattr(data, name)
        if own != wanted:
            raise ValueError(f"the task has {wanted} {what} and the model {own}; they must be the same")
    if data.validation(1).arguments.keys() != {"inputs"}:
        raise ValueError(f"flow measures one stack, and {data.name} has a source for another")


def _seeds(seeds: int | Sequence[int]) -> tuple[int, ...]:
    chosen = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not chosen or any(not isinstance(seed, int) or seed < 0 for seed in chosen):
        raise ValueError(f"seeds are a number of at least 1, or whole numbers of at least 0, not {seeds!r}")
    return chosen


def _training_steps(steps: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(steps, int):
        first = [step for step in FIRST_STEPS if step < steps]
        steps = [*first, *range(100, steps, 100), steps]
    wanted = tuple(sorted({int(step) for step in steps}))
    if not wanted or wanted[0] < 0:
        raise ValueError(f"training steps are whole numbers of at least 0, not {steps!r}")
    return wanted


def _check_input(spec: Spec, inputs: Any) -> None:
    if inputs is None:
        return
    shape = tuple(np.shape(inputs))
    wanted = 2 if spec.vocab is not None else 3
    width = spec.features or spec.width
    if len(shape) != wanted or (wanted == 3 and shape[-1] != width):
        expected = "(B, T) ids" if wanted == 2 else f"(B, T, {width}) vectors"
        raise ValueError(f"this stack takes {expected}; the input has the shape {shape}")
    if 0 in shape:
        raise ValueError(f"an input has at least one token; this one has the shape {shape}")
    if spec.vocab is not None:
        ids = np.asarray(inputs)
        if ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() >= spec.vocab:
            came = f"{ids.dtype} from {ids.min()} to {ids.max()}"
            raise ValueError(f"ids are whole numbers from 0 to {spec.vocab - 1}; the input has {came}")
