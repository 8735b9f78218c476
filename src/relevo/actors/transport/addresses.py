"""Where a process takes calls: `unix:/path`, `tcp://host:port` or `tls://host:port`. Pure."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Literal

from msgspec import Struct

from relevo.errors import SettingsError

Scheme = Literal["unix", "tcp", "tls"]


class PeerAddress(Struct, frozen=True):
    """An address, taken apart."""

    scheme: Scheme
    host: str
    """The path of a Unix socket; else a name or an address, without brackets."""
    port: int = 0

    @classmethod
    def read(cls, text: str) -> PeerAddress:
        """Return the parts of an address as it is advertised; raises `SettingsError`."""
        if text.startswith("unix:/"):
            return cls("unix", text.removeprefix("unix:"))
        scheme, mark, place = text.partition("://")
        if mark and scheme == "tcp":
            return cls("tcp", *host_and_port(place))
        if mark and scheme == "tls":
            return cls("tls", *host_and_port(place))
        raise SettingsError(
            f"{text!r} is no address of a host; write unix:/path, tcp://host:port or"
            " tls://host:port"
        )

    @property
    def is_private(self) -> bool:
        """Whether only processes of this machine reach it."""
        return self.scheme == "unix" or is_loopback(self.host)

    def __str__(self) -> str:
        if self.scheme == "unix":
            return f"unix:{self.host}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def host_and_port(text: str) -> tuple[str, int]:
    """Return the parts of `host:port` or `[host]:port`; raises `SettingsError`."""
    host, _, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    bracketed = host.startswith("[") and host.endswith("]")
    if not bare or (":" in bare) != bracketed or not port.isascii() or not port.isdigit():
        raise SettingsError(f"{text!r} is no place to listen on; write host:port, such as [::1]:0")
    if int(port) > 65_535:
        raise SettingsError(f"the port of {text!r} is above 65535")
    return bare, int(port)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by its address; of names only `localhost` counts."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def is_wildcard(host: str) -> bool:
    """Whether a host stands for all addresses of a machine, so that it names none."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
