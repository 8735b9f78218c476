"""Where the embedded server of a data folder lives: in it, or where root's account can enter."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Final

from relevo.errors import EmbeddedServerError
from relevo.kernel.postgres.embedded.account import server_account, shared_folder
from relevo.kernel.postgres.embedded.cluster_folder import ClusterFolder, write_file
from relevo.kernel.postgres.embedded.file_locks import locked_folder

POINTER: Final = "postgres.location"
DECIDE_SECONDS_MAX: Final = 60.0


def settle(home: Path) -> ClusterFolder:
    """Where the server of `home` lives; decided once, for a changed mode must not hide the data.

    `home` is made private if it is new or empty, and refused if it is not ours. The mode of a
    folder that holds something already is left alone, for it may be more than Relevo's.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked_folder(home, DECIDE_SECONDS_MAX):
        here, pointer = ClusterFolder(home), home / POINTER
        is_new = not any(home.iterdir())
        _take_possession(home, is_new=is_new)
        if pointer.exists():
            return _elsewhere(pointer)
        if here.data.exists() or here.users_lock.exists():
            return here
        if _account_enters(home, is_new=is_new):
            here.users_lock.touch(mode=0o600)
            return here
        return _move_out(home, pointer)


def holds_server(home: Path) -> bool:
    """Whether `settle` would find a server in `home`, rather than make one."""
    here = ClusterFolder(home.expanduser().absolute())
    return any(each.exists() for each in (here.path / POINTER, here.data, here.users_lock))


def _take_possession(home: Path, *, is_new: bool) -> None:
    info, user = home.stat(), os.geteuid()
    if is_new and user == 0:
        os.chown(home, 0, -1)
    elif info.st_uid != user:
        raise EmbeddedServerError(
            f"{home} belongs to uid {info.st_uid}, and this process runs as uid {user}; run Relevo"
            " as the owner, or set RELEVO_HOME to a folder of your own"
        )
    if is_new:
        home.chmod(0o700)
    elif info.st_mode & 0o022:
        raise EmbeddedServerError(
            f"others can write in {home} (mode {info.st_mode & 0o7777:o}); if it is for Relevo"
            f" alone, run chmod go-w {home}, else set RELEVO_HOME to a folder of its own"
        )


def _account_enters(folder: Path, *, is_new: bool) -> bool:
    """Whether the server's account can enter; a new folder is opened for its group."""
    account = server_account()
    if not account.is_other:
        return True
    if is_new:
        os.chown(folder, -1, account.gid)
        folder.chmod(0o710)
    return account.can_enter(folder)


def _elsewhere(pointer: Path) -> ClusterFolder:
    folder = Path(pointer.read_text().partition("\n")[0])
    if not folder.is_dir():
        raise EmbeddedServerError(
            f"{pointer} says that the server's data is in {folder}, which is not there; restore it,"
            f" or delete {pointer.parent} to start afresh"
        )
    return ClusterFolder(folder)


def _move_out(home: Path, pointer: Path) -> ClusterFolder:
    """A new folder that the account can enter, noted in `home`.

    Its name is never used again: a `home` that is deleted and made again has an empty database.
    """
    key = hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
    folder = Path(tempfile.mkdtemp(prefix=f"{key}-", dir=shared_folder()))
    if not _account_enters(folder, is_new=True):
        folder.rmdir()
        raise EmbeddedServerError(
            f"the account {server_account().name!r}, which PostgreSQL runs under as it refuses"
            f" root, can enter neither {home} nor {folder.parent}; start Relevo as an ordinary user"
        )
    reason = "it runs under an account that cannot enter this folder."
    write_file(
        folder / "home", f"{home}\n"
    )  # so that people can tell later what this folder is for
    write_file(pointer, f"{folder}\nThe PostgreSQL of this folder lives there: {reason}\n")
    return ClusterFolder(folder)
