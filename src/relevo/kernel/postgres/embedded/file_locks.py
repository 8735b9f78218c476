"""Locks on files (flock), which the kernel releases when their holder dies.

Such a lock belongs to the open file, not to the process: two descriptors in one process exclude
each other, and a descriptor that a child inherits shares the lock of its parent.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

POLL_SECONDS: Final = 0.02


def open_lock(path: Path) -> int:
    """A descriptor of the lock file, made if need be; programs that we start do not inherit it."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def try_lock(descriptor: int, how: int) -> bool:
    """Whether the lock was to be had at once, `how` being LOCK_SH or LOCK_EX."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_free(path: Path) -> bool:
    """Whether the lock is free."""
    descriptor = open_lock(path)
    try:
        return try_lock(descriptor, fcntl.LOCK_EX)
    finally:
        os.close(descriptor)


@contextmanager
def locked_folder(folder: Path, seconds: float) -> Iterator[None]:
    """Keeps others who do the same with `folder` out of the block; TimeoutError after `seconds`."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not until(lambda: try_lock(descriptor, fcntl.LOCK_EX), seconds):
            raise TimeoutError(f"another process has kept {folder} locked for {seconds:.0f} s")
        yield
    finally:
        os.close(descriptor)


def until(is_done: Callable[[], bool], seconds: float) -> bool:
    """Whether `is_done` came true in time."""
    deadline = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
