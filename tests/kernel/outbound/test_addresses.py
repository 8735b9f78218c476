"""Which addresses are special, and how an allow list opens some of them (J23)."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo import settings
from relevo.errors import OutboundRefused, SettingsError
from relevo.kernel.outbound.addresses import Allowed, is_special, literal, plain
from relevo.kernel.outbound.client import parsed

SPECIAL = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.19.255.255",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:0:127.0.0.1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::8.8.8.8",
    "100::1",
    "2001::1",
    "2001:0:7f00:1::",
    "2001:db8::1",
    "2002:7f00:1::",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
]
ORDINARY = [
    "1.1.1.1",
    "8.8.8.8",
    "11.0.0.1",
    "100.63.255.255",
    "100.128.0.0",
    "168.63.129.17",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.1",
    "198.17.255.255",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "2a00:1450:4001:82f::200e",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
]


@pytest.mark.parametrize("text", SPECIAL)
def test_what_is_not_of_the_internet_is_special(text: str) -> None:
    assert is_special(ip_address(text))
    assert not Allowed().permits("host.example", ip_address(text))


@pytest.mark.parametrize("text", ORDINARY)
def test_what_is_of_the_internet_is_open(text: str) -> None:
    assert not is_special(ip_address(text))
    assert Allowed().permits("host.example", ip_address(text))


@given(st.ip_addresses(v=4))
def test_nothing_that_the_standard_library_knows_as_special_is_open(address: IPv4Address) -> None:
    if not address.is_global or address.is_multicast or address.is_reserved:
        assert is_special(address)


@given(st.ip_addresses(v=6))
def test_that_holds_for_version_6(address: IPv6Address) -> None:
    target = plain(address)
    if not target.is_global or target.is_multicast or target.is_reserved:
        assert is_special(address)


@given(st.ip_addresses(v=4))
def test_an_address_written_as_version_6_is_what_it_stands_for(address: IPv4Address) -> None:
    for prefix in (0xFFFF << 32, 0x64FF9B << 96):
        assert is_special(IPv6Address(prefix | int(address))) == is_special(address)


def test_an_allow_list_opens_networks_and_hosts_and_nothing_else() -> None:
    allowed = Allowed.parse(["10.2.0.0/16", " ::1", "[fd00::7]", "Hooks.Internal."])
    assert allowed.permits("any", ip_address("10.2.255.1"))
    assert allowed.permits("any", ip_address("::ffff:10.2.0.1"))
    assert allowed.permits("any", ip_address("::1"))
    assert allowed.permits("any", ip_address("fd00::7"))
    assert allowed.permits("hooks.internal", ip_address("192.168.0.1"))
    assert allowed.permits("HOOKS.internal.", ip_address("127.0.0.1"))
    assert not allowed.permits("any", ip_address("10.3.0.1"))
    assert not allowed.permits("other.internal", ip_address("192.168.0.1"))
    assert not allowed.permits("a.hooks.internal", ip_address("192.168.0.1"))


def test_a_network_may_be_given_in_the_form_that_answers_have() -> None:
    allowed = Allowed.parse(["::ffff:10.2.0.0/112"])
    assert allowed.permits("any", ip_address("::ffff:10.2.0.1"))


@pytest.mark.parametrize(
    "entry",
    ["10.0.0.1/8", "10.0.0", "300.1.1.1", "0x7f.1", "http://hooks", "a b", "*", "", "a..b", "x:1"],
)
def test_an_entry_that_is_neither_host_nor_network_is_refused_by_name(entry: str) -> None:
    with pytest.raises(SettingsError, match=r"outbound_allow: .* is neither") as caught:
        settings.Settings(outbound_allow=(entry,))
    assert repr(entry) in str(caught.value)


def test_the_allow_list_is_a_setting_with_commas_in_the_environment() -> None:
    told = settings.load(environ={"RELEVO_OUTBOUND_ALLOW": "hooks.internal, 10.2.0.0/16,"})
    assert told.outbound_allow == ("hooks.internal", "10.2.0.0/16")
    with pytest.raises(SettingsError, match="outbound_allow"):
        settings.load(environ={"RELEVO_OUTBOUND_ALLOW": "10.2.0.0/8"})


@pytest.mark.parametrize(
    "host",
    ["2130706433", "0177.0.0.1", "127.1", "127.0.0.1.", "0x7f000001", "0x7f.0.0.1", "1.2.3", "::g"],
)
def test_numbers_that_are_read_in_two_ways_are_no_address(host: str) -> None:
    with pytest.raises(ValueError, match="usual form"):
        literal(host)


def test_names_are_no_addresses() -> None:
    assert literal("hooks.example") is None
    assert literal("1and1.example") is None
    assert literal("127.0.0.1") == IPv4Address("127.0.0.1")


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("ftp://host/x", "http:// or https://"),
        ("file:///etc/passwd", "http:// or https://"),
        ("gopher://host", "http:// or https://"),
        ("//host/x", "http:// or https://"),
        ("host/x", "http:// or https://"),
        ("http://", "is not a URL|must start"),
        ("http:///x", "is not a URL|must start"),
        ("http://host:0/", "http:// or https://"),
        ("http://host:99999/", "not a URL"),
        ("http://[::1", "not a URL"),
        ("https://ana:geheim@host/x", "holds a user or password"),
        ("https://ana@host/x", "holds a user or password"),
        ("https://host/" + "x" * 9_000, "longer than"),
    ],
)
def test_what_cannot_or_may_not_be_called_is_refused(url: str, text: str) -> None:
    with pytest.raises(OutboundRefused, match=text) as caught:
        parsed(url)
    assert "geheim" not in str(caught.value)


@given(st.text())
def test_any_text_is_a_url_or_refused(text: str) -> None:
    for candidate in (text, f"http://{text}", f"https://{text}/x"):
        try:
            assert parsed(candidate).scheme in ("http", "https")
        except OutboundRefused:
            continue
