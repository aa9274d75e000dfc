"""Measured signal and gradient by depth, of one stack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from normula.catalog import placement
from normula.data import Task
from normula.data import task as named_task
from normula.flow.findings import findings
from normula.flow.growth import growth
from normula.formula import Formula, Placement
from normula.formula.errors import nearest
from normula.framework import framework_of, packages, room
from normula.record import Flow, environment
from normula.spec import Spec

PROBES = ("random", "loss", "sum")
FIRST_STEPS = (0, 1, 2, 5, 10, 20, 50)


def flow(
    what: Any,
    *,
    seeds: int | Sequence[int] = 3,
    probe: str = "random",
    batch: int = 4,
    tokens: int = 16,
    inputs: Any = None,
    task: str | Task | None = None,
    steps: int | Sequence[int] = 0,
    lr: float = 1e-3,
    warmup: int = 0,
    framework: str | None = None,
    report: Callable[[], None] = lambda: None,
) -> Flow:
    """Measure a stack: the stream, its branches, its gradients, the skip path alone, the tokens' cosine.

        >>> import normula as nm
        >>> flow = nm.flow(nm.Spec(placement="pre", layers=4, width=16), seeds=1)
        >>> len(flow.passes[0].steps)
        8

    Args:
        what: a Spec, a placement's name, a formula's text, or a model made by `build`.
        seeds: how many, or which; each draws weights, input and probe anew.
        probe: what is differentiated: `random` (a random direction of length 1 in the output), `loss` (the
            cross-entropy on the task's tokens) or `sum` (of the output; blind behind a norm that centres).
        batch, tokens: B and T of the input.
        inputs: (B, T, D) vectors or (B, T) ids instead of random ones.
        task: `text` or `copy`: real tokens go in; needed for the probe `loss` and for training steps.
        steps: training steps to look at: a number n for 0, 1, 2, 5, 10 ... up to n, or the steps themselves.
        lr, warmup: of the training run.
        framework: `torch` or `flax`; None for a model's own, and for PyTorch.
        report: called after each pass, for a progress bar.

    Returns:
        A record; `findings` says what it shows, and whether the probe was void.

    Raises:
        ValueError: an argument that cannot be; or settings that contradict each other.
    """
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
    if data is not None and spec.vocab != data.vocab:
        raise ValueError(f"the task has {data.vocab} symbols and the model {spec.vocab}; they must be the same")
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


def _spec(what: Any) -> Spec:
    if isinstance(what, Spec):
        return what
    if isinstance(what, str | Formula | Placement):
        return Spec(placement=placement(what))
    raise ValueError(f"flow takes a Spec, a placement, a formula or a built model, not {type(what).__name__}")


def _for_task(spec: Spec, data: Task | None) -> Spec:
    """The spec as the task needs it, where it says nothing of tokens itself."""
    if data is None or spec.vocab is not None:
        return spec
    return replace(spec, vocab=data.vocab, causal=data.causal, context=data.context)


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
    if len(shape) != wanted or (wanted == 3 and shape[-1] != spec.width):
        expected = "(B, T) ids" if wanted == 2 else f"(B, T, {spec.width}) vectors"
        raise ValueError(f"this stack takes {expected}; the input has the shape {shape}")
    if 0 in shape:
        raise ValueError(f"an input has at least one token; this one has the shape {shape}")
    if spec.vocab is not None:
        ids = np.asarray(inputs)
        if ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() >= spec.vocab:
            came = f"{ids.dtype} from {ids.min()} to {ids.max()}"
            raise ValueError(f"ids are whole numbers from 0 to {spec.vocab - 1}; the input has {came}")
