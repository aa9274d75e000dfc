"""The user's text and the standard library's, split in two."""

import math
import os
from pathlib import Path

import numpy as np
import pytest

from normula.data import Corpus, corpus, task

WINDOW = 8
LEAST = 40 * WINDOW


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Nine tenths are a and b, the last tenth is z."""
    path = tmp_path / "text.txt"
    path.write_text("ab" * 450 + "z" * 100)
    return path


def test_the_last_tenth_of_a_file_is_for_validation(text: Path) -> None:
    found = corpus(text, WINDOW)
    assert bytes(found.train) == b"ab" * 450
    assert bytes(found.validation) == b"z" * 100
    assert found.name == "text.txt"


def test_no_byte_of_the_validation_part_is_in_a_training_window(text: Path) -> None:
    data = task("text", str(text), WINDOW)
    batches = data.batches(seed=0, size=32)
    for _ in range(50):
        batch = next(batches)
        assert ord("z") not in batch.inputs
        assert ord("z") not in batch.targets
    validation = data.validation()
    assert set(validation.inputs.flat) | set(validation.targets.flat) == {ord("z")}


def test_files_of_the_standard_library_are_in_one_part_or_the_other() -> None:
    found = corpus()
    train, validation = bytes(found.train), bytes(found.validation)
    assert len(train) > 9 * len(validation) / 2
    assert len(validation) > 100_000
    for source, part, other in ((math_like(train), train, validation), (math_like(validation), validation, train)):
        assert source in part
        assert source not in other


def math_like(part: bytes) -> bytes:
    """Some bytes from the middle of a part, long enough to be found nowhere else."""
    return part[len(part) // 2 :][:400]


def test_the_standard_library_is_read_once_and_is_text() -> None:
    assert corpus() is corpus()
    bytes(corpus().train).decode("utf-8", errors="strict")
    assert corpus().name == "Python's standard library"


def test_a_text_has_one_digest_and_every_change_has_another(tmp_path: Path) -> None:
    path, copy = tmp_path / "text.txt", tmp_path / "copy.txt"
    path.write_bytes(b"abcdefgh" * 100)
    copy.write_bytes(b"abcdefgh" * 100)
    first = corpus(path, WINDOW).digest
    assert corpus(path, WINDOW).digest == first
    assert corpus(copy, WINDOW).digest == first

    digests = {first, corpus().digest}
    for place in (0, 400, 719, 720, 799):  # in both parts, and on both sides of the cut
        changed = bytearray(b"abcdefgh" * 100)
        changed[place] = ord("X")
        path.write_bytes(changed)
        digests.add(corpus(path, WINDOW).digest)
    assert len(digests) == 7


def test_a_file_that_changes_is_read_again(text: Path) -> None:
    before = task("text", str(text), WINDOW)
    text.write_text("cd" * 500)
    after = task("text", str(text), WINDOW)
    assert after.digest != before.digest
    assert ord("c") in next(after.batches(0, 4)).inputs


def test_the_unigram_loss_is_that_of_the_best_guess_without_context() -> None:
    """Counts with one added to each of 256 bytes: -mean log((count + 1) / (n + 256))."""
    part = np.frombuffer(b"aaab", dtype=np.uint8)
    one = Corpus(name="four", train=part, validation=part, digest="")
    ids = np.array([ord("a"), ord("b"), ord("c")])
    expected = -(math.log(4 / 260) + math.log(2 / 260) + math.log(1 / 260)) / 3
    assert one.unigram_loss(ids) == pytest.approx(expected)


@pytest.mark.negative
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", rf"is empty; give a text of at least {LEAST} bytes"),
        (b"a" * (LEAST - 1), rf"has {LEAST - 1} bytes; windows of {WINDOW} tokens need at least {LEAST}"),
        (b"text\0" * 100, r"is not text \(it holds zero bytes or is not UTF-8\); give a text file"),
        ("text".encode("utf-16") * 100, "is not text"),
        (bytes(range(1, 256)) * 100, "is not text"),
    ],
    ids=["empty", "short", "zero bytes", "UTF-16", "binary"],
)
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "data"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=message) as error:
        corpus(path, WINDOW)
    assert str(path) in str(error.value)


@pytest.mark.negative
@pytest.mark.parametrize(
    ("data", "encoding"), [("ein Rätsel " * 100, "latin-1"), ("naïve ☃ " * 100, "utf-8"), ("a\tb\r\n\f" * 100, "ascii")]
)
def test_text_in_other_encodings_is_text(tmp_path: Path, data: str, encoding: str) -> None:
    path = tmp_path / "data"
    path.write_bytes(data.encode(encoding))
    found = corpus(path, WINDOW)
    assert bytes(found.train) + bytes(found.validation) == data.encode(encoding)


def test_the_shortest_text_that_is_taken_can_be_trained_and_validated_on(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"a" * LEAST)
    data = task("text", str(path), WINDOW)
    assert next(data.batches(0, 4)).inputs.shape == (4, WINDOW)
    assert data.validation().inputs.shape == (64, WINDOW)


@pytest.mark.negative
def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no file .*nothing\.txt"):
        corpus(tmp_path / "nothing.txt")


@pytest.mark.negative
def test_a_file_that_may_not_be_read_is_refused(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text.chmod(0)
    if os.access(text, os.R_OK):  # root reads all

        def refuse(path: Path) -> bytes:
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(ValueError, match=r"cannot be read \(Permission denied\)"):
        corpus(text)


class TestSeveralFiles:
    """Files a.txt, b.txt ... of 400 bytes of their own letter each."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        for place in range(23):
            self.write(tmp_path / f"{chr(97 + place)}.txt", chr(97 + place) * 400)
        return tmp_path

    @staticmethod
    def write(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def test_every_tenth_file_of_a_folder_is_for_validation(self, folder: Path) -> None:
        found = corpus(folder, WINDOW)
        assert bytes(found.validation) == b"j" * 400 + b"\n" + b"t" * 400
        assert set(bytes(found.train)) == set(b"abcdefghiklmnopqrsuvw\n")
        assert len(found.train) == 21 * 401 - 1
        assert found.name == folder.name

    def test_files_that_are_named_come_in_their_order(self, folder: Path) -> None:
        named = [str(folder / f"{letter}.txt") for letter in "cba"]
        found = corpus(named, WINDOW)
        assert bytes(found.train) == b"c" * 400 + b"\n" + b"b" * 400
        assert bytes(found.validation) == b"a" * 400
        assert found.name == "c.txt and 2 more"
        assert task("text", named, WINDOW).digest == found.digest

    def test_folders_below_are_read_and_what_is_hidden_or_no_text_is_not(self, folder: Path) -> None:
        before = corpus(folder, WINDOW)
        for name in (".git/config", ".hidden.txt", "below/.hidden/x.txt"):
            self.write(folder / name, "X" * 400)
        (folder / "data.bin").write_bytes(b"X\0" * 400)
        (folder / "empty.txt").write_bytes(b"")
        assert corpus(folder, WINDOW).digest == before.digest
        self.write(folder / "below" / "z.txt", "Z" * 400)
        assert ord("Z") in corpus(folder, WINDOW).train

    def test_a_text_that_is_there_twice_is_in_one_part_only(self, folder: Path) -> None:
        self.write(folder / "zz.txt", "j" * 400)
        found = corpus([folder, folder / "j.txt"], WINDOW)
        assert ord("j") not in found.train
        assert bytes(found.validation).count(b"j") == 400

    @pytest.mark.negative
    def test_parts_that_are_too_short_are_refused(self, tmp_path: Path) -> None:
        self.write(tmp_path / "a.txt", "a" * 1000)
        self.write(tmp_path / "b.txt", "b" * (4 * WINDOW - 1))
        message = "has 31 bytes for validation, in 1 of 2 texts .*; windows of 8 tokens need at least 32"
        with pytest.raises(ValueError, match=message):
            corpus(tmp_path, WINDOW)
        self.write(tmp_path / "b.txt", "b" * 4 * WINDOW)
        assert len(corpus(tmp_path, WINDOW).validation) == 4 * WINDOW
        self.write(tmp_path / "a.txt", "a" * (36 * WINDOW - 1))
        with pytest.raises(ValueError, match="has 287 bytes for training, in 1 of 2 texts"):
            corpus(tmp_path, WINDOW)

    @pytest.mark.negative
    def test_one_text_is_not_enough_for_two_parts(self, tmp_path: Path) -> None:
        self.write(tmp_path / "a.txt", "a" * 1000)
        with pytest.raises(ValueError, match="has 0 bytes for training, in 0 of 1 texts"):
            corpus(tmp_path, WINDOW)

    @pytest.mark.negative
    def test_a_named_file_that_is_no_text_is_refused(self, folder: Path) -> None:
        (folder / "data.bin").write_bytes(b"X\0" * 400)
        with pytest.raises(ValueError, match=r"data\.bin is not text"):
            corpus([folder / "a.txt", folder / "data.bin"], WINDOW)

    @pytest.mark.negative
    def test_a_folder_without_text_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="holds no text file"):
            corpus(tmp_path)
