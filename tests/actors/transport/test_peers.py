"""Who may talk to whom, where processes listen, and how connections begin and end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import stat
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import uvloop

from relevo.actors.core.calls import Returned
from relevo.actors.transport import frames
from relevo.actors.transport.connection import Timing
from relevo.actors.transport.credit import Window
from relevo.actors.transport.errors import NotSent, PeerRefused
from relevo.actors.transport.handshake import Handshake, KnownHosts, PeerIdentity
from relevo.actors.transport.listener import Listener
from relevo.actors.transport.peers import Peers
from relevo.actors.transport.tls import PeerTls
from relevo.errors import OutcomeUnknown, SettingsError
from tests.actors.transport.conftest import KEY, PATIENCE, Recorder, a_call, until
from tests.http.authority import Authority

if TYPE_CHECKING:
    from tests.actors.transport.conftest import Process, Processes

pytestmark = pytest.mark.anyio

TCP = "127.0.0.1:0"


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"key": b"x" * 32}, "key"),
        ({"cluster": "other"}, "cluster"),
        ({"name": "b", "since": 3}, "incarnation"),
    ],
)
async def test_a_stranger_gets_nothing_delivered(
    processes: Processes, told: dict[str, Any], reason: str
) -> None:
    host = await processes.host("a")
    host.peers.learn(PeerIdentity("b", "a younger life", 4))
    stranger = processes.client(**{"name": "stranger", **told})
    with pytest.raises(PeerRefused) as refused:
        await stranger.peers.call(host.address, a_call())
    assert refused.value.reason == reason
    with pytest.raises(NotSent) as again:  # the back-off answers without an attempt
        await stranger.peers.call(host.address, a_call())
    assert 0 < again.value.retry_after <= 2.0
    assert not host.recorder.delivered
    await until(lambda: not host.peers.connections, "the host has closed")


async def test_a_younger_life_ends_the_connection_of_the_older(processes: Processes) -> None:
    host = await processes.host("a")
    older = processes.client("b", incarnation="older", since=3)
    waiting = asyncio.ensure_future(older.peers.call(host.address, a_call("wait")))
    await until(lambda: bool(host.recorder.answers), "the call is delivered")
    younger = processes.client("b", incarnation="younger", since=4)
    assert await younger.peers.call(host.address, a_call()) == Returned(b"\x90")
    host.peers.learn(PeerIdentity("b", "youngest", 5))
    with pytest.raises(OutcomeUnknown):
        await waiting
    with pytest.raises(PeerRefused, match="followed by a younger one"):
        await older.peers.call(host.address, a_call())


class Raw:
    """A peer that knows the key and keeps to no rule."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, host: Process) -> Raw:
        return cls(*await asyncio.open_unix_connection(host.address.removeprefix("unix:")))

    @classmethod
    async def proved(cls, host: Process) -> Raw:
        raw = await cls.connect(host)
        me = PeerIdentity("raw", "raw")
        shaking = Handshake(
            "dialer", me, cluster="cluster", key=KEY, challenge=bytes(32), known=KnownHosts()
        )
        out = shaking.begin()
        while shaking.peer is None:
            raw.send(*out)
            out = shaking.receive(await raw.payload())
        return raw

    def send(self, *payloads: bytes) -> None:
        self.writer.write(b"".join(frames.with_length(payload) for payload in payloads))

    def send_frames(self, *sent: frames.TransportFrame) -> None:
        self.send(*(frames.encode(frame) for frame in sent))

    async def payload(self) -> bytes:
        async with asyncio.timeout(PATIENCE):
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            return await self._reader.readexactly(size)

    async def ending(self) -> str:
        """The reason that the host gives before it closes the connection."""
        reason = ""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                frame = frames.decode(await self.payload())
                reason = frame.reason if isinstance(frame, frames.GoAway) else reason
        self.writer.close()
        return reason


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\xff\xff\xff\xff",
        bytes(4),
        (9_000).to_bytes(4, "big"),
        b"\0\0\0\x01\xc1",
        frames.with_length(frames.encode(frames.CallFrame(1, a_call()))),
        frames.with_length(frames.encode(frames.Proof(bytes(32)))),
        frames.with_length(frames.encode(frames.GoAway("key", "no"))),
    ],
)
async def test_bytes_of_a_stranger_close_the_connection(processes: Processes, data: bytes) -> None:
    host = await processes.host("a")
    raw = await Raw.connect(host)
    raw.writer.write(data)
    assert await raw.ending()
    await until(lambda: not host.peers.connections, "nothing is kept")
    assert not host.recorder.delivered
    assert await processes.client().peers.call(host.address, a_call()) == Returned(b"\x90")


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        b"\0\0\0\x01\xc1",
        frames.with_length(frames.encode(frames.Proof(bytes(32)))),
        frames.with_length(frames.encode(frames.Credit(1, 1))),
        frames.with_length(msgspec.msgpack.encode([99, b""])),
        frames.with_length(frames.encode(frames.CallFrame(1, a_call(headers={"a": "b" * 9_000})))),
    ],
)
async def test_a_hostile_peer_that_knows_the_key_loses_its_connection(
    processes: Processes, data: bytes
) -> None:
    host = await processes.host("a")
    raw = await Raw.proved(host)
    raw.writer.write(data)
    assert await raw.ending() == "bad_frame"
    await until(lambda: not host.peers.connections, "nothing is kept")
    assert not host.recorder.delivered
    assert host.recorder.lost_peers == 1


async def test_a_peer_without_credit_loses_its_connection(processes: Processes) -> None:
    host = await processes.host("a", window=Window(3, 1_000))
    raw = await Raw.proved(host)
    raw.send_frames(*(frames.CallFrame(n, a_call("wait")) for n in range(1, 9)))
    await until(lambda: len(host.recorder.delivered) == 8, "what is taken in is granted again")
    raw.send_frames(frames.CallFrame(9, a_call(body=bytes(1_000))))
    assert await raw.ending() == "bad_frame"
    assert len(host.recorder.delivered) == 8


async def test_a_number_that_comes_twice_is_delivered_once(processes: Processes) -> None:
    host = await processes.host("a")
    raw = await Raw.proved(host)
    once = frames.CallFrame(2, a_call("wait"))
    raw.send_frames(once, once, frames.CallFrame(1, a_call()), frames.CallFrame(3, a_call()))
    found: list[frames.TransportFrame] = []
    while not found or not isinstance(found[-1], frames.AnswerFrame):
        found.append(frames.decode(await raw.payload()))
    assert found[-1].number == 3
    assert [call.method for call in host.recorder.delivered] == ["wait", "echo"]
    raw.writer.close()


async def test_a_draining_host_answers_what_it_took_in(processes: Processes) -> None:
    host, client = await processes.host("a"), processes.client()
    waiting = asyncio.ensure_future(client.peers.call(host.address, a_call("wait")))
    await until(lambda: bool(host.recorder.answers), "the call is delivered")
    assert host.listener is not None
    address = host.address
    await host.listener.stop()
    closing = asyncio.ensure_future(host.peers.close(PATIENCE))
    connection = client.peers.connections[0]
    await until(lambda: connection.is_leaving, "the client knows")
    with pytest.raises(NotSent):
        await client.peers.call(address, a_call())
    assert not closing.done()
    host.recorder.answers[0].set_result(Returned(b"at last"))
    assert await waiting == Returned(b"at last")
    await closing
    assert len(host.recorder.delivered) == 1


async def test_a_drain_that_lasts_too_long_leaves_calls_unknown(processes: Processes) -> None:
    host, client = await processes.host("a"), processes.client()
    waiting = asyncio.ensure_future(client.peers.call(host.address, a_call("wait")))
    await until(lambda: bool(host.recorder.answers), "the call is delivered")
    await host.peers.close(0)
    with pytest.raises(OutcomeUnknown):
        await waiting


async def test_events_follow_a_subscription_until_it_ends(processes: Processes) -> None:
    host, client = await processes.host("a"), processes.client()
    heard: list[tuple[int, bytes]] = []
    ended: list[bool] = []

    def hear(sequence: int, body: bytes) -> None:
        heard.append((sequence, body))
        if body == b"bad":
            raise ValueError("a fault of the subscriber")

    answer, first = await client.peers.subscribe(
        host.address, b"scores", hear, lambda: ended.append(True)
    )
    _, second = await client.peers.subscribe(host.address, b"other", hear, lambda: None)
    assert answer == Returned(b"")
    assert host.recorder.subscribed == {1: b"scores", 2: b"other"}
    peer = host.recorder.peers[0]
    for sequence, body in enumerate([b"one", b"bad", b"three"]):
        peer.emit(1, sequence, body)
    await until(lambda: len(heard) == 3, "all have arrived")
    assert heard == [(0, b"one"), (1, b"bad"), (2, b"three")]
    await first.renew(b"more scores")
    assert host.recorder.subscribed[1] == b"more scores"
    second.close()
    await client.peers.probe(host.address, b"who waits?")
    await until(lambda: host.recorder.probes == [b"who waits?"], "probes pass behind it")
    assert list(host.recorder.subscribed) == [1]
    await host.peers.close(0)
    await until(lambda: ended == [True], "the subscriber hears of the end")


async def test_a_slow_reader_holds_events_back(processes: Processes) -> None:
    host = await processes.host("a")
    raw = await Raw.proved(host)
    raw.send_frames(frames.Subscribe(1, 1, b""))
    await until(lambda: bool(host.recorder.peers), "it is subscribed")
    peer, sent = host.recorder.peers[0], 0
    while not peer.is_congested:
        peer.emit(1, sent, bytes(100_000))
        sent += 1
        await asyncio.sleep(0)
    free = asyncio.ensure_future(peer.until_writable())
    events = 0
    while events < sent:
        events += isinstance(frames.decode(await raw.payload()), frames.EventFrame)
    await free
    raw.writer.close()


async def test_with_tls_hosts_meet_by_certificates_of_one_authority(
    processes: Processes, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    tls = []
    for name in ("one", "two"):
        cert, key = authority.make_out(name)
        cert.write_bytes(cert.read_bytes() + authority.ca.read_bytes())
        tls.append(PeerTls(cert, key))
    host, client = await processes.host("a", listen=TCP, tls=tls[0]), processes.client(tls=tls[1])
    assert host.address.startswith("tls://")
    body = bytes(300_000)
    assert await client.peers.call(host.address, a_call(body=body)) == Returned(body)
    with pytest.raises(NotSent, match="set tls_cert and tls_key here, too"):
        await processes.client().peers.call(host.address, a_call())
    stranger = Authority(tmp_path)
    foreign = processes.client(tls=PeerTls(*stranger.make_out("three")))
    with pytest.raises(NotSent, match="certificate"):
        await foreign.peers.call(host.address, a_call())
    plain = f"tcp://127.0.0.1:{host.port}"
    with pytest.raises(NotSent):
        await processes.client(timing=Timing(handshake=1.0)).peers.call(plain, a_call())
    assert len(host.recorder.delivered) == 1


async def test_somebody_in_between_with_a_certificate_of_the_authority_is_refused(
    processes: Processes, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    files = {name: authority.make_out(name) for name in ("host", "between")}
    for cert, _ in files.values():
        cert.write_bytes(cert.read_bytes() + authority.ca.read_bytes())
    tls = PeerTls(*files["host"])
    host, client = await processes.host("a", listen=TCP, tls=tls), processes.client(tls=tls)
    between = PeerTls(*files["between"])
    writers: list[asyncio.StreamWriter] = []

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, forth = await asyncio.open_connection("127.0.0.1", host.port, ssl=between.client)
        writers.extend([writer, forth])
        await asyncio.gather(copy(reader, forth), copy(theirs, writer))

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
        writer.close()

    server = await asyncio.start_server(pass_on, "127.0.0.1", 0, ssl=between.server)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(PeerRefused) as refused:
            await client.peers.call(f"tls://127.0.0.1:{port}", a_call())
    assert refused.value.reason == "key"
    assert not host.recorder.delivered


async def test_plain_tcp_to_another_machine_is_never_tried(processes: Processes) -> None:
    with pytest.raises(NotSent, match="plain TCP is for loopback only"):
        await processes.client().peers.call("tcp://10.0.0.1:7400", a_call())
    with pytest.raises(NotSent, match="no address"):
        await processes.client().peers.call("carrier pigeon", a_call())
    with pytest.raises(NotSent, match="cannot connect"):
        await processes.client().peers.call("unix:/nowhere/a.sock", a_call())


async def test_sockets_are_private_and_those_of_dead_processes_go(
    processes: Processes, short_path: Path
) -> None:
    first = await processes.host("a")
    path = Path(first.address.removeprefix("unix:"))
    assert path.parent == short_path / "actors"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    dead = path.with_name("dead.sock")
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(dead))
    second = await processes.host("b")
    assert not dead.exists()
    assert second.address != first.address
    assert path.exists()
    assert second.listener is not None
    await second.listener.stop()
    assert [one.name for one in path.parent.iterdir()] == [path.name]


async def test_a_folder_that_others_can_enter_is_refused(
    processes: Processes, short_path: Path
) -> None:
    (short_path / "actors").mkdir(mode=0o755)
    (short_path / "actors").chmod(0o755)
    with pytest.raises(SettingsError, match="chmod 700"):
        await processes.host("a")


async def test_a_long_data_folder_gets_a_socket_elsewhere(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 30)
    recorder = Recorder()
    told: Any = {"cluster": "cluster", "key": KEY}
    peers = Peers(partial(PeerIdentity, "a", "1"), receiver=recorder, **told)
    client = Peers(partial(PeerIdentity, "b", "2"), **told)
    listener = Listener(peers, home)
    address = await listener.start()
    folder = Path(address.removeprefix("unix:")).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert await client.call(address, a_call()) == Returned(b"\x90")
    await client.close()
    await peers.close()
    await listener.stop()
    assert not folder.exists()


def test_the_same_holds_on_uvloop(tmp_path: Path) -> None:
    async def talk() -> None:
        told: Any = {"cluster": "cluster", "key": KEY}
        tls = PeerTls(*Authority(tmp_path).make_out("host"))
        for listen, context in ((None, None), (TCP, None), (TCP, tls)):
            recorder = Recorder()
            peers = Peers(partial(PeerIdentity, "a", "1"), receiver=recorder, tls=context, **told)
            client = Peers(partial(PeerIdentity, "b", "2"), tls=context, **told)
            listener = Listener(peers, tmp_path, listen)
            address = await listener.start()
            for body in (b"small", bytes(2_000_000)):
                assert await client.call(address, a_call(body=body)) == Returned(body)
            waiting = asyncio.ensure_future(client.call(address, a_call("wait")))
            await until(lambda one=recorder: len(one.answers) == 3, "delivered")  # type: ignore[misc]
            await peers.close(0)
            with pytest.raises(OutcomeUnknown):
                await waiting
            await client.close()
            await listener.stop()

    uvloop.run(talk())
