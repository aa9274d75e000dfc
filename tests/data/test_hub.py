"""Data sets through the package datasets: from a folder that a test makes; nothing is fetched."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from normula.data import Text, task
from normula.data.hub import dataset

ROWS = [{"text": f"row {number} " * 10, "title": f"title {number}", "number": number} for number in range(40)]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The package, without a network and with a cache of the test's own."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    dataset.cache_clear()
    yield datasets
    dataset.cache_clear()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "some"
    path.mkdir()
    for split, rows in (("train", ROWS), ("test", ROWS[:20])):
        (path / f"{split}.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return path


@pytest.mark.parametrize("offline", [True, False], ids=["offline", "streaming"])
def test_every_tenth_row_is_for_validation(
    hub: Any, folder: Path, offline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub.config, "HF_HUB_OFFLINE", offline)
    data = task(f"hf:{folder}", context=8)
    assert isinstance(data, Text)
    assert data.name == f"hf:{folder}"
    held = range(9, 40, 10)
    assert bytes(data.corpus.validation).decode() == "\n".join(str(ROWS[i]["text"]) for i in held)
    assert bytes(data.corpus.train).decode() == "\n".join(str(row["text"]) for row in ROWS if row["number"] not in held)


def test_a_split_and_a_column(hub: Any, folder: Path) -> None:
    found = dataset(f"{folder}:test:title", 2)
    assert bytes(found.validation) == b"title 9\ntitle 19"
    assert dataset(f"{folder}:test", 8).digest != found.digest


def test_no_more_is_read_than_a_short_race_needs(hub: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from normula.data import hub as module

    monkeypatch.setattr(module, "MOST_BYTES", 1000)
    found = dataset(str(folder), 2)
    assert len(found.train) + len(found.validation) < 1000 + 100 + 20


@pytest.mark.negative
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "say which data set: hf:NAME"),
        ("{folder}:valid", "cannot be read: Unknown split"),
        ("{folder}:train:number", "no text in a column 'number'; its columns are text, title, number"),
        ("{folder}:train:words", "no text in a column 'words'"),
        ("{folder}/nothing", "cannot be read: Couldn't find any data file"),
        ("owner/name", "needs a network, or a copy in the cache of datasets"),
        ("owner/name/part", "needs a network, or a copy in the cache of datasets: Couldn't reach 'owner/name'"),
    ],
)
def test_what_cannot_be_read_is_said_in_a_line(hub: Any, folder: Path, name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        task("hf:" + name.replace("{folder}", str(folder)))
    assert "\n" not in str(error.value)


@pytest.mark.negative
def test_several_columns_of_text_are_asked_about(hub: Any, tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text("\n".join(json.dumps({"question": "q", "answer": "a"}) for _ in range(9)))
    with pytest.raises(ValueError, match=r"hf:NAME:SPLIT:COLUMN; those with text are question, answer"):
        task(f"hf:{tmp_path}")


@pytest.mark.negative
def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ValueError, match=r"needs the package datasets; install it with: pip install 'normula\[hub\]'"):
        dataset("some", 8)
