"""Here lives Store: what a race has found so far, in one SQLite file; what is in it survives any end of a process."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from normula.race.grid import Grid
from normula.race.origin import Origin
from normula.race.trial import Entry
from normula.record import Trial, from_dict, to_dict

SCHEMA = 1
"""Of the tables below; a file says which it has as its `user_version`."""

APPLICATION = 0x6E6F726D
"""`norm`: which program the file belongs to, as its `application_id`."""

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE entries (place INTEGER PRIMARY KEY, identity TEXT NOT NULL, name TEXT, init TEXT);
CREATE TABLE trials (identity TEXT PRIMARY KEY, outcome TEXT NOT NULL, entry TEXT NOT NULL, record TEXT NOT NULL);
CREATE TABLE states (identity TEXT PRIMARY KEY, seconds REAL NOT NULL, state BLOB NOT NULL);
CREATE TABLE parts (identity TEXT, step INTEGER, record TEXT NOT NULL, PRIMARY KEY (identity, step));
CREATE TABLE cuts (question TEXT, step INTEGER, setting TEXT, note TEXT NOT NULL,
                   PRIMARY KEY (question, step, setting));
CREATE TABLE events (seconds REAL NOT NULL, identity TEXT, what TEXT NOT NULL);
"""


class StoreError(ValueError):
    """A file that is not, or cannot be, the store of a race."""


class Store:
    """A race's file, or its memory where there is no file.

    Made by `create` and `resume`, which hold the file alone until it is closed, and `open`, which reads.

    Attributes:
        path: the file; None for memory.
        grid: of the race.
        origin: what its results depend on beside the grid.
        budget: the limits that belong to the race: `halving`, `max_seconds`.
    """

    def __init__(self, path: Path | None, base: sqlite3.Connection, lock: Any = None) -> None:
        self.path, self._base, self._lock = path, base, lock
        self._begun = time.monotonic()
        self._seconds_before = 0.0

    @classmethod
    def create(cls, path: str | os.PathLike[str] | None, grid: Grid, origin: Origin, budget: Mapping[str, Any]) -> Self:
        """A new store.

        Raises:
            StoreError: the file exists, or cannot be written.
        """
        place = None if path is None else Path(path)
        if place is not None:
            _check_new(place)
        store = cls(place, *_locked(place))
        try:
            with store._transaction():
                for (table,) in store._base.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                    store._base.execute(f"DROP TABLE {table}")
                for table in TABLES.split(";"):
                    store._base.execute(table)
                store._base.execute(f"PRAGMA application_id = {APPLICATION}")
                store._base.execute(f"PRAGMA user_version = {SCHEMA}")
                store._keep(
                    grid=grid.to_dict(), digest=grid.digest, origin=to_dict(origin), budget=dict(budget), seconds=0.0
                )
                store._base.executemany(
                    "INSERT INTO entries VALUES (?, ?, ?, ?)",
                    ((n, entry.identity, entry.name, entry.init) for n, entry in enumerate(grid.entries)),
                )
            store._take_hold()
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def resume(cls, path: str | os.PathLike[str]) -> Self:
        """A store that exists, to be gone on with.

        Raises:
            StoreError: there is no such file, it is no store or damaged, another process holds it, or it cannot be
                written.
        """
        place = Path(path)
        cls.open(place).close()  # what is wrong is found before anything is written
        store = cls(place, *_locked(place))
        try:
            with _told(place):
                [(found,)] = store._base.execute("PRAGMA quick_check(1)")
            if found != "ok":
                raise StoreError(f"{place} is damaged: {found}")
            store._seconds_before = float(store._meta("seconds"))
            store._take_hold()
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """A store to be read, also while a race writes it.

        Raises:
            StoreError: there is no such file, or it is no store.
        """
        place = Path(path)
        _check_store(place)
        store = cls(place, _reading(place))
        try:
            store._check()
            store._seconds_before = float(store._meta("seconds"))
            store._begun = 0.0
        except BaseException:
            store.close()
            raise
        return store

    @property
    def grid(self) -> Grid:
        return Grid.from_dict(self._meta("grid"))

    @property
    def digest(self) -> str:
        """Of the grid, as it was when the race began."""
        return str(self._meta("digest"))

    @property
    def origin(self) -> Origin:
        return from_dict(Origin, self._meta("origin"))

    @property
    def budget(self) -> dict[str, Any]:
        return dict(self._meta("budget"))

    @property
    def seconds(self) -> float:
        """That the race took, all its sessions together."""
        return self._seconds_before + (time.monotonic() - self._begun if self._begun else 0.0)

    @property
    def planned(self) -> int:
        """Runs of the grid."""
        [(count,)] = self._rows("SELECT count(*) FROM entries")
        return int(count)

    @property
    def trials(self) -> tuple[Trial, ...]:
        """The runs that were made, in the order of the grid; one that stands in it under two names comes twice."""
        made = self.finished()
        rows = self._rows("SELECT identity, name, init FROM entries ORDER BY place")
        return tuple(
            replace(made[identity], name=name or made[identity].name, init=init or made[identity].init)
            for identity, name, init in rows
            if identity in made
        )

    @property
    def events(self) -> tuple[tuple[float, str | None, str], ...]:
        """What happened beside the runs that ended well: seconds of the race, the run, what."""
        return tuple(self._rows("SELECT seconds, identity, what FROM events ORDER BY rowid"))

    def finished(self) -> dict[str, Trial]:
        """The runs that were made, by identity."""
        return {identity: self._trial(record) for identity, record in self._rows("SELECT identity, record FROM trials")}

    def state(self, identity: str) -> tuple[bytes | None, float]:
        """What a run can go on from, and seconds that it has taken; None where there is nothing."""
        for state, seconds in self._rows("SELECT state, seconds FROM states WHERE identity = ?", identity):
            return state, seconds
        return None, 0.0

    def parts(self) -> dict[tuple[str, int], Trial]:
        """Runs as they were where halving looked at them, by identity and step."""
        rows = self._rows("SELECT identity, step, record FROM parts")
        return {(identity, step): self._trial(record) for identity, step, record in rows}

    def cuts(self) -> dict[tuple[str, int], dict[str, str]]:
        """What halving has decided, by question and step: for each setting why it was dropped, or nothing."""
        found: dict[tuple[str, int], dict[str, str]] = {}
        for question, step, setting, note in self._rows("SELECT question, step, setting, note FROM cuts"):
            found.setdefault((question, step), {})[setting] = note
        return found

    def save(self, identity: str, state: bytes, seconds: float) -> None:
        """Keep what a run can go on from."""
        with self._transaction():
            self._put_state(identity, state, seconds)

    def part(self, identity: str, step: int, trial: Trial, state: bytes) -> None:
        """Keep a run as it is where halving looks at it."""
        with self._transaction():
            self._put_state(identity, state, trial.seconds)
            self._put("parts", identity, step, _text(to_dict(trial)))

    def cut(self, question: str, step: int, notes: Mapping[str, str], dropped: Iterable[tuple[Entry, Trial]]) -> None:
        """Keep what halving has decided, and the runs that end by it."""
        with self._transaction():
            for setting, note in notes.items():
                self._put("cuts", question, step, setting, note)
            for entry, trial in dropped:
                self._put_trial(entry, trial)

    def finish(self, entry: Entry, trial: Trial) -> None:
        """Keep a run that is over; there is nothing to go on from any more."""
        with self._transaction():
            self._put_trial(entry, trial)

    def forget(self, identity: str) -> None:
        """Let a run be made again, from its start."""
        with self._transaction():
            for table in ("trials", "states", "parts"):
                self._base.execute(f"DELETE FROM {table} WHERE identity = ?", (identity,))

    def note(self, what: str, identity: str | None = None) -> None:
        """Keep something that happened."""
        with self._transaction():
            self._event(what, identity)

    def close(self) -> None:
        """Let go of the file; it is then one file, without a log beside it."""
        try:
            with suppress(sqlite3.Error):
                if self._lock is not None:
                    self._base.execute("PRAGMA journal_mode = DELETE")
                self._base.close()
        finally:
            if self._lock is not None:
                self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _put_trial(self, entry: Entry, trial: Trial) -> None:
        record = to_dict(trial)
        self._put("trials", trial.identity, trial.outcome, _text(entry.to_dict()), _text(record))
        self._base.execute("DELETE FROM states WHERE identity = ?", (trial.identity,))
        self._base.execute("DELETE FROM parts WHERE identity = ?", (trial.identity,))
        if trial.note:
            self._event(f"{trial.outcome}: {trial.note}", trial.identity)

    def _put_state(self, identity: str, state: bytes, seconds: float) -> None:
        self._put("states", identity, seconds, state)

    def _event(self, what: str, identity: str | None) -> None:
        self._put("events", self.seconds, identity, what)

    def _put(self, table: str, *values: Any) -> None:
        marks = ", ".join("?" * len(values))
        self._base.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", values)

    def _keep(self, **values: Any) -> None:
        for key, value in values.items():
            self._put("meta", key, _text(value))

    def _meta(self, key: str) -> Any:
        for (value,) in self._rows("SELECT value FROM meta WHERE key = ?", key):
            return json.loads(value)
        raise StoreError(f"{self.path} is damaged: it has no {key}")

    def _rows(self, question: str, *values: Any) -> Sequence[tuple[Any, ...]]:
        with _told(self.path):
            return self._base.execute(question, values).fetchall()

    def _trial(self, record: str) -> Trial:
        try:
            return from_dict(Trial, json.loads(record))
        except ValueError as error:
            raise StoreError(f"{self.path} holds a run that cannot be read: {error}") from None

    def _take_hold(self) -> None:
        with self._transaction():
            self._keep(holder=os.getpid())

    def _check(self) -> None:
        """Whether it is a store, and of a schema that is read here."""
        with _told(self.path):
            [(application,)] = self._base.execute("PRAGMA application_id")
            [(version,)] = self._base.execute("PRAGMA user_version")
            [(tables,)] = self._base.execute("SELECT count(*) FROM sqlite_master")
        if tables == 0:
            raise StoreError(f"{self.path} holds no race yet; start it again with --out {self.path}")
        if application != APPLICATION:
            raise StoreError(f"{self.path} is not a race, but some other SQLite file")
        if version > SCHEMA:
            raise StoreError(
                f"{self.path} has schema {version}, and this normula knows up to {SCHEMA}; update normula to read it"
            )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All that is done inside is in the file when it ends, or none of it."""
        with _told(self.path):
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._keep(seconds=self.seconds)
                self._base.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._base.execute("ROLLBACK")
                raise


@contextmanager
def _told(place: Path | None) -> Iterator[None]:
    """What SQLite says is said with the file, and what to do."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise StoreError(
            f"{place} cannot be read or written ({error}); what was finished before is kept. Once that is mended, go "
            f"on with: normula race --resume {place}"
        ) from None
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{place} is damaged ({error}); go on from a copy, or start again") from None


def _text(data: Any) -> str:
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


def _check_new(place: Path) -> None:
    if place.is_dir():
        raise StoreError(f"{place} is a folder; a race is kept in one file: give its name")
    if not place.absolute().parent.is_dir():
        raise StoreError(f"there is no folder {place.parent}; make it first")
    if place.exists() and not _is_empty(place):
        raise StoreError(f"{place} exists; go on with it by --resume {place}, or give another file")


def _is_empty(place: Path) -> bool:
    """Whether no run is in a file, as where its race could not begin, or was killed at once."""
    if not place.stat().st_size:
        return True
    with suppress(StoreError, sqlite3.Error), closing(_reading(place)) as base:
        [(application,)] = base.execute("PRAGMA application_id")
        [(tables,)] = base.execute("SELECT count(*) FROM sqlite_master")
        if tables == 0:
            return True
        if application == APPLICATION:
            kept = [
                base.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("trials", "states", "parts")
            ]
            return not any(kept)
    return False


def _check_store(place: Path) -> None:
    try:
        with place.open("rb") as file:
            start = file.read(16)
    except FileNotFoundError:
        raise StoreError(f"there is no race {place}") from None
    except OSError as error:
        raise StoreError(f"{place} cannot be read ({error.strerror})") from None
    if start and start != b"SQLite format 3\0":
        raise StoreError(f"{place} is not a race; a race is an SQLite file that normula race has written")


def _locked(place: Path | None) -> tuple[sqlite3.Connection, Any]:
    """A connection that writes, and the lock that makes it the only one."""
    if place is None:
        return sqlite3.connect(":memory:", isolation_level=None), None
    lock = _lock(place)
    try:
        with _told(place):
            base = sqlite3.connect(place, isolation_level=None)
            base.execute("PRAGMA journal_mode = WAL")
            base.execute("PRAGMA synchronous = FULL")
    except StoreError:
        lock.release()
        raise
    return base, lock


def _lock(place: Path) -> Any:
    try:
        from filelock import FileLock, Timeout
    except ModuleNotFoundError:
        raise ImportError("filelock is not installed; install it with: pip install 'normula[race]'") from None
    lock = FileLock(f"{place}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise StoreError(
            f"{place} is being written by another process{_holder(place)}; wait for it, or end it first"
        ) from None
    except OSError as error:
        raise StoreError(f"{place} cannot be written ({error.strerror or error})") from None
    return lock


def _holder(place: Path) -> str:
    with suppress(sqlite3.Error, StoreError):
        store = Store(place, _reading(place))
        try:
            return f", {store._meta('holder')}"
        finally:
            store.close()
    return ""


def _reading(place: Path) -> sqlite3.Connection:
    """A connection that reads; also from a folder in which nothing can be written."""
    uri = place.absolute().as_uri()
    log = Path(f"{place}-wal")
    is_whole = not log.exists() or not log.stat().st_size  # else what was written last stands there
    for mode in ("mode=ro", *(["immutable=1"] if is_whole else [])):
        base = sqlite3.connect(f"{uri}?{mode}", uri=True, isolation_level=None)
        try:
            base.execute("SELECT count(*) FROM sqlite_master").fetchall()
            return base
        except sqlite3.Error as error:
            base.close()
            last = error
    raise StoreError(f"{place} cannot be read ({last})")
