"""Which addresses a call to the outside may go to.

The world beyond is open, what is special is closed: somebody who may write a policy must not reach
what only this machine can reach (its loopback, its network, its cloud's metadata). `Allowed` opens
single hosts and networks again.
"""

from __future__ import annotations

import re
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from relevo.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

_SPECIAL_V4: Final = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this host; Linux takes 0.0.0.0 for loopback
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT; metadata of one cloud lives here
        "127.0.0.0/8",
        "168.63.129.16/32",  # a public address that one cloud answers itself, inside the machine
        "169.254.0.0/16",  # link-local; metadata of most clouds
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments; metadata of one cloud
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4, withdrawn
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
_GLOBAL_V6: Final = IPv6Network("2000::/3")
"""All that has been given out for use across the internet; the rest is special as a whole."""
_SPECIAL_V6: Final = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments, among them tunnels to addresses of version 4
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4, withdrawn: it too leads to addresses of version 4
        "3fff::/20",  # documentation
    )
)
_MAPPED: Final = IPv6Network("::ffff:0:0/96")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_NAME: Final = re.compile(r"(?=.{1,253}$)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")


def plain(address: Address) -> Address:
    """Return the address that a connection really goes to.

    One of version 4 may be written as one of version 6; networks that have only the latter reach
    the whole of version 4 through the prefix of NAT64, so that prefix is not special by itself.
    """
    if isinstance(address, IPv4Address):
        return address
    if address in _MAPPED or address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return IPv6Address(int(address))  # without the zone, by which link-local ones differ


def is_special(address: Address) -> bool:
    """Say whether an address is anything but an ordinary one of the internet."""
    target = plain(address)
    if isinstance(target, IPv4Address):
        return any(target in network for network in _SPECIAL_V4)
    return target not in _GLOBAL_V6 or any(target in network for network in _SPECIAL_V6)


class Allowed(Struct, frozen=True):
    """Addresses allowed besides the internet: hosts by name, and networks."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, entries: Iterable[str]) -> Allowed:
        """Read an allow list, such as `["hooks.internal", "10.2.0.0/16", "::1"]`.

        Raises `SettingsError` that names the entry which is neither host nor network.
        """
        hosts: set[str] = set()
        networks: list[Network] = []
        for entry in entries:
            text = entry.strip().removeprefix("[").removesuffix("]")
            try:
                networks.append(ip_network(text))
            except ValueError as error:
                name = normal(text)
                if not _NAME.fullmatch(name) or _looks_numeric(name):
                    raise SettingsError(
                        f"outbound_allow: {entry!r} is neither the name of a host nor an address or"
                        f" network ({error}); write it like hooks.internal or 10.2.0.0/16"
                    ) from None
                hosts.add(name)
        return cls(frozenset(hosts), tuple(networks))

    def permits(self, host: str, address: Address) -> bool:
        """Say whether a call for `host` may connect to `address`, one that the host resolved to."""
        if normal(host) in self.hosts or not is_special(address):
            return True
        written, target = address, plain(address)
        return any(one in network for network in self.networks for one in (written, target))

    def permits_plain(self, host: str, address: Address) -> bool:
        """The same for what must not be read on the way and goes without encryption: only to what
        was opened here, which is the operator's own network."""
        opened = normal(host) in self.hosts or is_special(address)
        return opened and self.permits(host, address)


def literal(host: str) -> Address | None:
    """Return the address that a URL's host is, or None if it is a name to be resolved.

    Raises `ValueError` for numbers that some programs take for an address and others do not, such
    as 2130706433, 0177.0.0.1 or 127.1: what is checked must be what is connected to.
    """
    try:
        return ip_address(host)
    except ValueError:
        if ":" in host or _looks_numeric(host):
            raise ValueError("not an address in its usual form") from None
        return None


def normal(host: str) -> str:
    """Return a host's name in the form by which names are compared."""
    return host.lower().rstrip(".")


def _looks_numeric(host: str) -> bool:
    """Say whether the last part is a number: no name of the internet ends like that."""
    last = normal(host).rpartition(".")[2]
    return last.isdigit() or re.fullmatch(r"0x[0-9a-f]*", last) is not None
