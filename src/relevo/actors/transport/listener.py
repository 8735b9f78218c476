"""Where a process takes calls: a Unix socket in the data folder, or a TCP address if one is set."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from relevo.actors.transport.addresses import (
    PeerAddress,
    host_and_port,
    is_loopback,
    is_wildcard,
)
from relevo.errors import SettingsError

if TYPE_CHECKING:
    from relevo.actors.transport.peers import Peers

SOCKET_PATH_BYTES_MAX: Final = 100
"""macOS allows 103, Linux 107."""
OUTSIDE: Final = "/tmp"  # noqa: S108 - short, and the folder made there is private
BACKLOG: Final = 256


class Listener:
    """Accepts the connections of peers; `start` returns the address to advertise."""

    def __init__(
        self, peers: Peers, home: Path, listen: str | None = None, advertise: str | None = None
    ) -> None:
        self._peers = peers
        self._home = home
        self._place = checked_place(listen, advertise, has_tls=peers.tls is not None)
        self._server: asyncio.Server | None = None
        self._outside: Path | None = None
        self.address: str | None = None
        """Where peers reach this process; None before `start`."""

    async def start(self) -> str:
        """Listen; return the address. Raises `SettingsError` if that is not possible."""
        loop = asyncio.get_running_loop()
        if self._place is None:
            path, listening = self._unix_socket()
            self._server = await loop.create_unix_server(
                self._peers.accept, sock=listening, backlog=BACKLOG
            )
            self.address = str(PeerAddress("unix", str(path)))
            return self.address
        host, port, name, named_port = self._place
        tls = self._peers.tls
        try:
            self._server = await loop.create_server(
                self._peers.accept, host, port, backlog=BACKLOG,
                ssl=None if tls is None else tls.server,
            )  # fmt: skip
        except OSError as error:
            raise SettingsError(
                f"cannot listen on actors_listen {host}:{port}: {error.strerror or error}"
            ) from None
        bound: int = self._server.sockets[0].getsockname()[1]
        self.address = str(PeerAddress("tcp" if tls is None else "tls", name, named_port or bound))
        return self.address

    async def stop(self) -> None:
        """Accept no more connections; those that are open go on."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        if self.address is not None and self.address.startswith("unix:"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.address.removeprefix("unix:"))
        if self._outside is not None:
            with contextlib.suppress(OSError):
                self._outside.rmdir()
        self.address = self._outside = None

    def _unix_socket(self) -> tuple[Path, socket.socket]:
        """Return a listening socket of a name that nobody can guess.

        It gets the name when it listens already: a socket that refuses is that of a dead process.
        """
        folder = self._folder()
        path = folder / f"{secrets.token_hex(8)}.sock"
        draft = path.with_suffix(".new")
        listening = socket.socket(socket.AF_UNIX)
        try:
            listening.setblocking(False)
            listening.bind(str(draft))
            draft.chmod(0o600)
            listening.listen(BACKLOG)
            draft.rename(path)
        except OSError as error:
            listening.close()
            raise SettingsError(f"cannot listen on a Unix socket in {folder}: {error}") from None
        return path, listening

    def _folder(self) -> Path:
        folder = self._home.resolve() / "actors"
        if len(os.fsencode(folder)) + len("/0123456789abcdef.sock") > SOCKET_PATH_BYTES_MAX:
            self._outside = Path(tempfile.mkdtemp(prefix="relevo-", dir=OUTSIDE))
            return self._outside
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = folder.lstat()
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
            raise SettingsError(
                f"{folder} is not a private folder of this account (uid {info.st_uid}, mode"
                f" {info.st_mode & 0o7777:o}); run: chmod 700 {folder}"
            )
        _remove_dead(folder)
        return folder


def checked_place(
    listen: str | None, advertise: str | None, *, has_tls: bool
) -> tuple[str, int, str, int] | None:
    """Return host and port to listen on, and those to advertise; None for a Unix socket.

    Raises `SettingsError` for plain TCP beyond loopback, and for a place that names no host.
    """
    if listen is None:
        if advertise is not None:
            raise SettingsError(
                f"actors_address is {advertise!r}, but the host listens on a Unix socket; set"
                " actors_listen, too"
            )
        return None
    host, port = host_and_port(listen)
    if not has_tls and not is_loopback(host):
        raise SettingsError(
            f"actors_listen is {listen!r}, which others can reach: calls would travel unencrypted."
            " Set tls_cert and tls_key, or listen on 127.0.0.1"
        )
    if advertise is not None:
        return host, port, *host_and_port(advertise)
    if is_wildcard(host):
        raise SettingsError(
            f"actors_listen is {listen!r}, which names no host that others could connect to; set"
            " actors_address to the name or address of this host and its port"
        )
    return host, port, host, 0


def _remove_dead(folder: Path) -> None:
    """Remove the sockets of processes that were killed."""
    for path in folder.glob("*.sock"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
            except OSError:
                continue
