"""A text column of a data set of the Hugging Face hub, or of a folder in its formats, as a corpus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from normula.data.text import STANDARD_LIBRARY_BYTES, Corpus, parted

MOST_BYTES = STANDARD_LIBRARY_BYTES


@cache
def dataset(name: str, window: int) -> Corpus:
    """The first texts of a data set, four megabytes at most, read once; every tenth row is for validation.

    Args:
        name: `NAME`, `NAME:SPLIT` or `NAME:SPLIT:COLUMN`, where a name is that of a folder, `owner/name` or
            `owner/name/configuration`. The split is `train` and the column `text`, or the only one that holds text.
        window: T, tokens that a model sees at once.

    Raises:
        ValueError: `datasets` is not installed, or there is no such data set, split or column, or no network.
    """
    try:
        import datasets
    except ImportError:
        raise ValueError(f"hf:{name} needs the package datasets; install it with: pip install 'normula[hub]'") from None
    where, _, rest = name.partition(":")
    if not where:
        raise ValueError("say which data set: hf:NAME, hf:NAME:SPLIT or hf:NAME:SPLIT:COLUMN")
    split, _, column = rest.partition(":")
    place, configuration = _place(where)
    try:
        # what a machine without a network has in its cache is read from there, whole
        rows = datasets.load_dataset(
            place, configuration, split=split or "train", streaming=not datasets.config.HF_HUB_OFFLINE
        )
        texts = list(_texts(rows, column))
    except ConnectionError as error:
        raise ValueError(f"hf:{name} needs a network, or a copy in the cache of datasets: {_line(error)}") from None
    except Exception as error:  # what datasets raises has no common class: of the hub, a split, a file format
        raise ValueError(f"hf:{name} cannot be read: {_line(error)}") from None
    return parted(f"hf:{name}", texts, window)


def _place(name: str) -> tuple[str, str | None]:
    """A folder or a name of the hub, and the configuration that may come behind the name."""
    if not Path(name).exists() and name.count("/") == 2:
        place, _, configuration = name.rpartition("/")
        return place, configuration
    return name, None


def _texts(rows: Iterable[Mapping[str, Any]], column: str) -> Iterator[bytes]:
    size = 0
    for row in rows:
        column = column or _text_column(row)
        if column not in row or not isinstance(row[column], str):
            raise ValueError(f"it has no text in a column {column!r}; its columns are {', '.join(row)}")
        data = row[column].encode()
        if data:
            yield data
        size += len(data)
        if size >= MOST_BYTES:
            return


def _text_column(row: Mapping[str, Any]) -> str:
    texts = [column for column, value in row.items() if isinstance(value, str)]
    if "text" in texts:
        return "text"
    if len(texts) != 1:
        raise ValueError(f"say which column to read, hf:NAME:SPLIT:COLUMN; those with text are {', '.join(texts)}")
    return texts[0]


def _line(error: Exception) -> str:
    """The first line of what was said."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
