"""Errors of the system and of PostgreSQL as EmbeddedServerErrors that say what to do."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from relevo.errors import EmbeddedServerError
from relevo.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FREE_BYTES_MIN: Final = 16 * MIB
"""One segment of the write-ahead log: with less than this, the server cannot start."""

_ELSEWHERE: Final = "set RELEVO_HOME to a folder elsewhere"
_DISK_FULL: Final = f"the disk is full: free some space and try again, or {_ELSEWHERE}"
# PostgreSQL prints the system's own texts, so one table serves its messages and our exceptions.
ADVICE: Final = {
    errno.ENOSPC: _DISK_FULL,
    errno.EDQUOT: _DISK_FULL,
    errno.EROFS: f"the file system is read-only: make it writable, or {_ELSEWHERE}",
    errno.EACCES: f"this user may not do that: change the owner or the mode, or {_ELSEWHERE}",
    errno.EPERM: f"this user may not do that: change the owner or the mode, or {_ELSEWHERE}",
    errno.EEXIST: f"a file is where the folder should be: move it away, or {_ELSEWHERE}",
    errno.ENOTDIR: f"a file is where the folder should be: move it away, or {_ELSEWHERE}",
}
ADVICE_OTHERWISE: Final = (
    "mend that and try again, or set RELEVO_DATABASE_URL to another PostgreSQL"
)


def failure(folder: Path, said: str) -> EmbeddedServerError:
    """The error for a server in `folder` that cannot run, with `said` as the reason."""
    causes = [code for code in ADVICE if os.strerror(code) in said]
    if not causes and _is_full(folder):
        causes = [errno.ENOSPC]  # then the log could not be written either, and says nothing
    advice = ADVICE[causes[0]] if causes else ADVICE_OTHERWISE
    return EmbeddedServerError(
        f"the embedded PostgreSQL cannot run in {folder}: {said or 'it said nothing'}; {advice}"
    )


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turns an OSError of the block into an EmbeddedServerError."""
    try:
        yield
    except OSError as error:
        raise failure(folder, str(error)) from error


def _is_full(folder: Path) -> bool:
    try:
        space = os.statvfs(folder)
    except OSError:
        return False
    return space.f_bavail * space.f_frsize < FREE_BYTES_MIN
