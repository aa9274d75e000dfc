"""Here live the files of a report: checked before the work, and written whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from pathlib import Path

LEAST_FREE_BYTES = 16 * 2**20
"""Room for a page, which stays below 2 MiB, and for what else is written while it is made."""
_PROBE = b"\0" * 2**16
_FULL = (errno.ENOSPC, errno.EDQUOT)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Make sure, before any work, that a report can be written there later.

    Leaves nothing behind; a file that is there already stays as it is.

    Raises:
        ValueError: the folder is missing or cannot be written to, the path is a folder, or no space is left.
    """
    try:
        target = _target(path)
        if _is_special(target):
            _check_device(target)
            return
        if shutil.disk_usage(target.parent).free < LEAST_FREE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        probe = _beside(target)
        try:
            _put(probe, _PROBE)
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        raise _refusal(path, error) from None


def write(what: str | bytes, path: str | os.PathLike[str]) -> None:
    """Write bytes, or a text as UTF-8: into a file beside it first, which then takes its place.

    Whoever reads the path sees the old file or the new one, never half of one; what goes wrong leaves the old one.
    A device or a pipe, such as /dev/stdout, is written to directly.

    Raises:
        ValueError: it cannot be written; the message says why and what to do.
    """
    # a name from a command line may hold bytes that are no UTF-8
    data = what if isinstance(what, bytes) else what.encode(errors="backslashreplace")
    try:
        target = _target(path)
        if _is_special(target):
            with target.open("wb") as file:
                file.write(data)
            return
        new = _beside(target)
        try:
            _put(new, data)
            if target.exists():
                new.chmod(stat.S_IMODE(target.stat().st_mode))
            os.replace(new, target)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        raise _refusal(path, error) from None


def _target(path: str | os.PathLike[str]) -> Path:
    """The file itself, behind symbolic links; refused where it cannot be one."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise ValueError(
            f"a report is a file, and {path} is a folder; name a file in it, such as {target / 'report.html'}"
        )
    if not target.parent.exists():
        raise ValueError(f"the folder of a report must exist, and {target.parent} does not; make it or name another")
    if not target.parent.is_dir():
        raise ValueError(f"a report lies in a folder, and {target.parent} is a file; name another place")
    if target.exists() and not os.access(target, os.W_OK):
        raise ValueError(f"a report replaces what is there, and {path} may not be written; name another file")
    return target


def _is_special(target: Path) -> bool:
    """A device or a pipe, which must not be replaced by a file."""
    return target.exists() and not target.is_file()


def _check_device(target: Path) -> None:
    """A full device says so only when something is written; a terminal or a pipe would show it."""
    if not target.is_char_device():
        return
    with target.open("wb", buffering=0) as file:
        if not file.isatty():
            file.write(b"\n")


def _beside(target: Path) -> Path:
    """A new name in the same folder; only there is replacing a single act."""
    return target.parent / f".normula-{secrets.token_hex(8)}.part"


def _put(path: Path, data: bytes) -> None:
    """Write a new file, down to the disk, with the permissions that the user's files have."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _refusal(path: str | os.PathLike[str], error: OSError) -> ValueError:
    if error.errno in _FULL:
        need = LEAST_FREE_BYTES // 2**20
        return ValueError(
            f"a report needs {need} MiB of free space, and at {path} no such space is left; make room first"
        )
    reason = (error.strerror or str(error)).lower()
    return ValueError(f"a report must be written, and {path} cannot be ({reason}); name another file")
