"""Here lives Task: what a small model is trained on, the same batches for every contestant; and the tasks by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from normula.data.base import VALIDATION
from normula.data.batch import Batch
from normula.data.hub import dataset
from normula.data.tasks.copying import Copy, Repeat
from normula.data.tasks.digits import Digits
from normula.data.tasks.listops import ListOps
from normula.data.tasks.next_byte import Text
from normula.data.tasks.recall import Recall
from normula.data.tasks.translate import Translate
from normula.data.text import corpus
from normula.formula.errors import nearest
from normula.spec import Spec


@runtime_checkable
class Task(Protocol):
    """A stream of batches that depends on a seed alone.

    Attributes:
        name: `text`, `copy` ...
        vocab: V, symbols that go in; None where values do.
        features: P, values of a token that go in; None where ids do.
        classes: of the whole sequence; None where each token is scored.
        context: T.
        causal: whether the model may not look ahead.
    """

    @property
    def name(self) -> str: ...
    @property
    def vocab(self) -> int | None: ...
    @property
    def features(self) -> int | None: ...
    @property
    def classes(self) -> int | None: ...
    @property
    def context(self) -> int: ...
    @property
    def causal(self) -> bool: ...
    @property
    def stuck_loss(self) -> float:
        """Loss in nats of a model that has learnt how often each symbol comes and no more."""
        ...

    @property
    def digest(self) -> str:
        """Changes when the data change."""
        ...

    def batches(self, seed: int, size: int, first: int = 0) -> Iterator[Batch]:
        """Training batches without end, from number `first` on: those that a run from 0 sees there."""
        ...

    def validation(self, size: int = VALIDATION) -> Batch:
        """One fixed batch that is never trained on."""
        ...

    def spec(self, **fields: Any) -> Spec:
        """The spec of a model for the task; placement, layers, width, heads, norm, init, seed ... are given."""
        ...


HUB = "hf:"
"""What the name of a data set begins with."""

TASKS: Mapping[str, str] = {
    "text": "bytes of a text: each is to foretell the next; your files, or Python's standard library",
    "copy": "8 random symbols of 16: each position is to give back its own",
    "repeat": "15 random symbols, a separator, the same again: each is to foretell the next",
    "digits": "which digit is it? scikit-learn's 8 x 8 images, in a small vision transformer",
    "translate": "reverse, sort or copy a sequence, as its first word says; an encoder and a decoder",
    "recall": "keys and values go by; a key that comes again is to give its value",
    "listops": "the values of nested operations such as [MAX 2 9 [MIN 4 7 ] 0 ], at each closing bracket",
    f"{HUB}NAME": "bytes of a data set of the Hugging Face hub: hf:NAME, hf:NAME:SPLIT or hf:NAME:SPLIT:COLUMN",
}
"""The names of the tasks, and what each asks for."""

_MADE: Mapping[str, Callable[..., Task]] = {
    "copy": Copy,
    "repeat": Repeat,
    "translate": Translate,
    "recall": Recall,
    "listops": ListOps,
}
"""Those that are made by a rule, for any context."""


def task(name: str = "text", path: Path | str | Sequence[Path | str] | None = None, context: int | None = None) -> Task:
    """A task by name.

        >>> task("recall").context
        32

    Args:
        name: one of TASKS.
        path: the user's text: a file, several, or a folder.
        context: T, the tokens that a model sees at once; None for the task's own.

    Raises:
        ValueError: an unknown name, a path where none is read, a text that cannot be used, a context that cannot be.
    """
    if context is not None and context < 1:
        raise ValueError(f"the context of a task is a whole number of at least 1, not {context!r}")
    if name != "text" and path is not None:
        raise ValueError(f"the {name} task makes its own data; give a file with the task text")
    if name == "text" or name.startswith(HUB):
        window = 32 if context is None else context
        if name == "text":
            return Text(corpus(path, window), window)
        return Text(dataset(name.removeprefix(HUB), window), window, name=name)
    if name == "digits":
        images = Digits()
        if context not in (None, images.context):
            raise ValueError(f"the images of digits have {images.context} patches; leave out context={context}")
        return images
    if name not in _MADE:
        raise ValueError(f"a task is one of {', '.join(TASKS)}, not {name!r}{nearest(name, TASKS)}")
    return _MADE[name]() if context is None else _MADE[name](context=context)
