"""Calls between processes: answered, canceled, held back, and honest about their end."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import pytest

from relevo import limits
from relevo.actors.core.calls import Refused, Returned
from relevo.actors.transport.connection import Timing
from relevo.actors.transport.credit import Window
from relevo.actors.transport.errors import NotSent
from relevo.errors import InvalidValue, OutcomeUnknown, TooLarge
from relevo.testing import Proxy
from tests.actors.transport.conftest import PATIENCE, Relay, a_call, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.actors.transport.conftest import Processes

pytestmark = pytest.mark.anyio

TCP = "127.0.0.1:0"
QUICK = Timing(handshake=PATIENCE, ping=0.05, silence=0.3)


@pytest.mark.parametrize("listen", [None, TCP, "[::1]:0"])
async def test_many_calls_at_once_share_one_connection(
    processes: Processes, listen: str | None
) -> None:
    host, client = await processes.host("a", listen=listen), processes.client()
    bodies = [n.to_bytes(2, "big") for n in range(300)]
    answers = await asyncio.gather(
        *(client.peers.call(host.address, a_call(body=body)) for body in bodies)
    )
    assert answers == [Returned(body) for body in bodies]
    assert host.recorder.bodies == bodies
    assert len(host.peers.connections) == len(client.peers.connections) == 1


async def test_a_host_calls_back_over_the_connection_of_the_caller(processes: Processes) -> None:
    one, two = await processes.host("a"), await processes.host("b")
    await one.peers.call(two.address, a_call())
    await two.peers.call(one.address, a_call(body=b"back"))
    assert one.recorder.bodies == [b"back"]
    assert len(one.peers.connections) == len(two.peers.connections) == 1


async def test_two_hosts_that_dial_at_once_keep_one_connection(processes: Processes) -> None:
    one, two = await processes.host("a"), await processes.host("b")
    for _ in range(5):
        await asyncio.gather(
            *(one.peers.call(two.address, a_call()) for _ in range(20)),
            *(two.peers.call(one.address, a_call()) for _ in range(20)),
        )
    await until(lambda: len(one.peers.connections) == 1, "one connection is given up")
    await until(lambda: len(two.peers.connections) == 1, "one connection is given up")
    assert len(one.recorder.delivered) == len(two.recorder.delivered) == 100


async def test_answers_come_in_any_order(processes: Processes) -> None:
    host, client = await processes.host("a"), processes.client()
    calls = [
        asyncio.ensure_future(client.peers.call(host.address, a_call("wait"))) for _ in range(3)
    ]
    await until(lambda: len(host.recorder.answers) == 3, "all are delivered")
    for n in (2, 0, 1):
        host.recorder.answers[n].set_result(Returned(bytes([n])))
    assert await asyncio.gather(*calls) == [Returned(bytes([n])) for n in range(3)]


async def test_a_canceled_caller_is_told_to_the_host(processes: Processes) -> None:
    host, client = await processes.host("a"), processes.client()
    waiting = asyncio.ensure_future(client.peers.call(host.address, a_call("wait")))
    await until(lambda: bool(host.recorder.answers), "the call is delivered")
    waiting.cancel()
    await until(lambda: host.recorder.canceled == host.recorder.delivered, "the host knows")
    host.recorder.answers[0].set_result(Returned(b"late"))
    assert await client.peers.call(host.address, a_call()) == Returned(b"\x90")


async def test_without_credit_calls_wait_here_in_their_order(processes: Processes) -> None:
    host = await processes.host("a", listen=TCP, window=Window(3, 10_000))
    client = processes.client()
    with Proxy(("127.0.0.1", host.port)) as proxy:
        call = partial(client.peers.call, f"tcp://127.0.0.1:{proxy.port}")
        await call(a_call(body=b"first"))
        await until(lambda: client.peers.connections[0]._outgoing._credit.calls == 3, "granted")  # type: ignore[union-attr]
        proxy.cut_downstream()  # neither answers nor credit arrive
        calls = [asyncio.ensure_future(call(a_call(body=bytes([n])))) for n in range(9)]
        await until(lambda: len(host.recorder.delivered) == 4, "as many as there is credit for")
        calls[5].cancel()
        await asyncio.wait([calls[5]])
        assert host.recorder.bodies == [b"first", b"\0", b"\1", b"\2"]
        proxy.heal()
        answers = await asyncio.gather(*calls, return_exceptions=True)
    assert host.recorder.bodies == [b"first", *(bytes([n]) for n in range(9) if n != 5)]
    assert isinstance(answers.pop(5), asyncio.CancelledError)
    assert all(isinstance(answer, Returned) for answer in answers)


async def test_the_time_that_a_call_waited_is_taken_from_its_timeout(processes: Processes) -> None:
    host = await processes.host("a", listen=TCP, window=Window(1, 10_000))
    client = processes.client()
    with Proxy(("127.0.0.1", host.port)) as proxy:
        proxy.slow(latency=0.02)
        await asyncio.gather(
            *(
                client.peers.call(f"tcp://127.0.0.1:{proxy.port}", a_call(timeout=5.0))
                for _ in range(3)
            )
        )
    left = [call.timeout for call in host.recorder.delivered]
    assert 5.0 > left[0] > left[1] > left[2] > 0.0


async def test_what_cannot_travel_fails_alone(processes: Processes) -> None:
    host, client = await processes.host("a", window=Window(10, 5_000)), processes.client()
    call = partial(client.peers.call, host.address)
    await call(a_call())
    with pytest.raises(TooLarge):
        await call(a_call(body=bytes(limits.ACTOR_FRAME_BYTES_MAX)))
    with pytest.raises(TooLarge, match="the peer takes at most 5000"):
        await call(a_call(body=bytes(6_000)))
    with pytest.raises(InvalidValue, match="headers"):
        await call(a_call(headers={"a": "b" * 5_000}))
    failed = await call(a_call("fail"))
    assert isinstance(failed, Refused)
    assert (failed.code, failed.executed) == ("outcome_unknown", None)
    waiting = asyncio.ensure_future(call(a_call("wait")))
    await until(lambda: not host.recorder.answers[-1].done(), "it is delivered")
    host.recorder.answers[-1].set_result(Returned(bytes(limits.ACTOR_FRAME_BYTES_MAX)))
    refused = await waiting
    assert isinstance(refused, Refused)
    assert (refused.code, refused.executed) == ("too_large", True)
    assert await call(a_call()) == Returned(b"\x90")
    assert len(client.peers.connections) == 1


async def test_a_cut_at_any_byte_is_told_honestly(processes: Processes) -> None:
    """# I31: not sent means that it never ran; what may have run is unknown."""
    host, client = await processes.host("a", listen=TCP), processes.client()
    async with Relay(host.port, 10**9) as relay:
        address = f"tcp://127.0.0.1:{relay.port}"
        await client.peers.connection(address)
        handshake = relay.passed
        await asyncio.gather(*(client.peers.call(address, a_call()) for _ in range(4)))
        total = relay.passed
        await client.peers.close()
    assert total > handshake
    kinds = set()
    cuts = [0, 1, handshake - 1, handshake, *range(handshake + 1, total + 1, 7), total]
    for number, cut in enumerate(cuts):
        bodies = [bytes([number, n]) for n in range(4)]
        caller = processes.client()
        async with Relay(host.port, cut) as relay:
            call = partial(caller.peers.call, f"tcp://127.0.0.1:{relay.port}")
            told = await asyncio.gather(
                *(call(a_call("wait", body)) for body in bodies), return_exceptions=True
            )
        await until(lambda: not host.peers.connections, "the host has read to the end")
        ran = set(host.recorder.bodies)
        for body, outcome in zip(bodies, told, strict=True):
            kinds.add(type(outcome))
            assert isinstance(outcome, (NotSent, OutcomeUnknown)), outcome
            assert not (isinstance(outcome, NotSent) and body in ran), (cut, outcome)
    assert kinds == {NotSent, OutcomeUnknown}
    assert set(host.recorder.bodies) & {bytes([len(cuts) - 1, n]) for n in range(4)}


async def test_a_call_that_waits_for_credit_is_not_sent_when_the_connection_breaks(
    processes: Processes,
) -> None:
    host = await processes.host("a", listen=TCP, window=Window(2, 10_000))
    client = processes.client()
    with Proxy(("127.0.0.1", host.port)) as proxy:
        call = partial(client.peers.call, f"tcp://127.0.0.1:{proxy.port}")
        await client.peers.connection(f"tcp://127.0.0.1:{proxy.port}")
        proxy.cut_downstream()
        calls = [asyncio.ensure_future(call(a_call(body=bytes([n])))) for n in range(4)]
        await until(lambda: len(host.recorder.delivered) == 2, "as many as there is credit for")
        proxy.reset()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    expected = [OutcomeUnknown, OutcomeUnknown, NotSent, NotSent]
    assert [type(outcome) for outcome in outcomes] == expected
    assert host.recorder.bodies == [b"\0", b"\1"]


@pytest.mark.parametrize("cut", [Proxy.cut, Proxy.cut_downstream])
async def test_a_silent_connection_is_closed_by_both(
    processes: Processes, cut: Callable[[Proxy], None]
) -> None:
    host = await processes.host("a", listen=TCP, timing=QUICK)
    client = processes.client(timing=QUICK)
    with Proxy(("127.0.0.1", host.port)) as proxy:
        address = f"tcp://127.0.0.1:{proxy.port}"
        waiting = asyncio.ensure_future(client.peers.call(address, a_call("wait")))
        await until(lambda: bool(host.recorder.answers), "the call is delivered")
        cut(proxy)
        with pytest.raises(OutcomeUnknown, match="no sign of life"):
            await waiting
        await until(lambda: not host.peers.connections or cut is not Proxy.cut, "the host closes")


async def test_a_quiet_connection_stays_open(processes: Processes) -> None:
    host, client = await processes.host("a", timing=QUICK), processes.client(timing=QUICK)
    waiting = asyncio.ensure_future(client.peers.call(host.address, a_call("wait")))
    connection = await client.peers.connection(host.address)
    written = connection._outbox.written
    await until(lambda: connection._outbox.written > written + 50, "ten pings have gone out")
    host.recorder.answers[0].set_result(Returned(b"there"))
    assert await waiting == Returned(b"there")
