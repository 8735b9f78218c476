"""Lists of networks as settings name them, and whether an address lies in one of them."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from relevo.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable

Network: TypeAlias = IPv4Network | IPv6Network
_V6_PREFIX: Final = 64
"""The IPv6 prefix of a subscriber, who has all of its addresses."""


class Networks(Struct, frozen=True):
    """Addresses and networks that a setting lists."""

    networks: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, setting: str, entries: Iterable[str]) -> Networks:
        """Read a list such as `["10.2.0.0/16", "::1"]`; raises `SettingsError` that names it."""
        found: list[Network] = []
        for entry in entries:
            try:
                found.append(ip_network(entry.strip().removeprefix("[").removesuffix("]")))
            except ValueError as error:
                raise SettingsError(
                    f"{setting}: {entry!r} is neither an address nor a network ({error}); write it"
                    " like 10.2.0.7 or 10.2.0.0/16"
                ) from None
        return cls(tuple(found))

    def __contains__(self, address: str) -> bool:
        if not self.networks:
            return False
        try:
            found = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        plain = found.ipv4_mapped or found if isinstance(found, IPv6Address) else found
        return any(plain in network for network in self.networks)


def subscriber(address: str) -> str:
    """Return the part of the address space that one caller has: an IPv4 address, or an IPv6 /64.

    >>> subscriber("2001:db8:1:2:3::4"), subscriber("192.0.2.1"), subscriber("::ffff:192.0.2.1")
    ('2001:db8:1:2::/64', '192.0.2.1', '192.0.2.1')
    """
    if ":" not in address:
        return address
    try:
        found = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(IPv6Network((int(found), _V6_PREFIX), strict=False))


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return address == "localhost" or ip_address(address).is_loopback
    except ValueError:
        return False
