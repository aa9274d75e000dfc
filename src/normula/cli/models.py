"""What the commands that read a model share: the model that a text names, and its page."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from normula.record import Flow
from normula.record.reading import Reading

MOST_PARAMETERS: Final = 3e8
"""A model with more is not measured unless that is asked for: three passes take minutes on a CPU."""

SEEDS: Final = 3


def source_of(text: str, inputs: Sequence[str]) -> Any:
    """The model that a text names, with example inputs.

    Raises:
        ValueError, ImportError: it leads to none; the message says what to pass.
    """
    from normula.framework import room

    sources = room("torch").sources
    return sources.source(text, dict(sources.parse_input(one) for one in inputs) or None)


def reading_of(source: Any) -> Reading:
    """The reading of such a model.

    Raises:
        ValueError: it cannot be read, or its forward raises.
    """
    from normula.read.twin import read_source

    with refusing(f"{source.title} cannot be read: its forward raises"):
        return read_source(source)


@contextmanager
def refusing(text: str) -> Iterator[None]:
    """What a model raises is shown in one line, as all that is wrong with what a user gave."""
    try:
        yield
    except (ValueError, ImportError):
        raise
    except Exception as error:
        said = str(error).strip().splitlines()
        raise ValueError(f"{text} {type(error).__name__}{f' ({said[0]})' if said else ''}") from error


def measured(source: Any, reading: Reading, **options: Any) -> Flow:
    """The measurements of a model that was read; one that holds no weights gets random ones, where it is not large.

    Raises:
        ValueError: as `normula.flow`.
    """
    from normula.flow import flow_of

    with refusing(f"{source.title} cannot be measured: its forward or its backward pass raises"):
        if source.weighed is None:
            return reading.flow(**options)
        real = source.weighed()
        seeds = range(options.pop("seeds", SEEDS))
        return flow_of(real.model, real.args, real.kwargs, reading=reading, seeds=seeds, **options)


def page_of(source: Any, reading: Reading, command: str, inputs: Sequence[str], flow: Flow | None = None) -> str:
    """The page of a model; it is measured for it where that was not done and does not take long."""
    from normula.report.model_page import model_page

    why = ""
    if flow is None:
        flow, why = _measured(source, reading)
    words = ["normula", command, source.title, *(word for one in inputs for word in ("--input", one)), "--html", "F"]
    return model_page(
        reading,
        source.title,
        note=source.note,
        flow=flow,
        without_flow=why,
        weights=weights_of(source),
        command=shlex.join(words),
    )


def weights_of(source: Any) -> str:
    """The weights that are measured, in words."""
    if source.weighed is not None:
        return "random, as its config starts a training"
    return "random, of a smaller twin" if source.twin is not None else "those of the model"


def _measured(source: Any, reading: Reading) -> tuple[Flow | None, str]:
    """What was measured, or why nothing was."""
    if not reading.stages:
        return None, "Nothing was measured: the model has no residual stream that could be."
    size = sum(one.numel() for one in source.model.parameters()) if hasattr(source.model, "parameters") else 0
    if source.twin is None and size > MOST_PARAMETERS:
        return None, (
            f"Not measured here: the model has {size / 1e6:,.0f} million parameters, and it would take minutes. "
            f"normula flow {source.title} --html F measures it and makes this page."
        )
    try:
        return measured(source, reading), ""
    except ValueError as error:
        return None, f"It could not be measured: {error}"
