"""What is wrong with a source, or with what a user said about its inputs."""

from __future__ import annotations

import traceback
from importlib import import_module
from pathlib import Path
from types import ModuleType


class SourceError(ValueError):
    """A text that leads to no model, or a model whose inputs cannot be made."""


def needed(package: str) -> ModuleType:
    """An optional package.

    Raises:
        ImportError: it is not installed or does not load; the message says what to do.
    """
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        missing = (error.name or package).split(".")[0]
        raise ImportError(f"{missing} is not installed; install it with: pip install {missing}") from None
    except (ImportError, RuntimeError) as error:  # a torchvision built for another torch raises RuntimeError
        said = str(error).strip().splitlines()
        raise ImportError(
            f"{package} does not load here ({said[0] if said else type(error).__name__}); "
            f"install versions of torch, torchvision and {package} that fit each other"
        ) from None


def raised_at(error: BaseException) -> str:
    """Where an error was raised, in the last file that is nobody's package."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if "site-packages" not in one.filename]
    own = [one for one in frames if Path(one.filename).parent != Path(__file__).parent]
    return f", {Path(own[-1].filename).name} line {own[-1].lineno}" if own else ""


def first_line(error: BaseException) -> str:
    """An error in one line: its type and how its message begins."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else ""
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__
