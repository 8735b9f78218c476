"""Streams of server-sent events, until the client leaves, the host stops or time is up.

A stream holds no slot of the requests in flight; it has a bound of its own. Its client reconnects
by itself, with the id of the last event that it has seen.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from relevo import limits
from relevo.errors import RelevoError
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping

    from relevo.http.answers import Answer, Headers
    from relevo.http.request import Head
    from relevo.kernel.operation import Sent, Stream

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]

CONTENT_TYPE: Final = b"text/event-stream"
HEADERS: Final[Headers] = ((b"content-type", CONTENT_TYPE), (b"x-accel-buffering", b"no"))
"""The second header keeps proxies from buffering events."""
SIGN_OF_LIFE: Final = b": still here\n\n"
log = get_logger(__name__)


def wanted(head: Head) -> bool:
    """Whether a request asks for a stream."""
    if head.method != "GET":
        return False
    accepted = b",".join(head.values(b"accept")).lower().split(b",")
    return any(one.partition(b";")[0].strip() == CONTENT_TYPE for one in accepted)


async def chunks(stream: Stream) -> AsyncIterator[bytes]:
    """Yield a stream as it goes over the wire."""
    yield SIGN_OF_LIFE  # so that the client knows at once that it is connected
    async for sent in stream.events:
        yield SIGN_OF_LIFE if sent is None else _frame(sent)


def _frame(sent: Sent) -> bytes:
    # JSON has no line breaks outside of texts, and in texts they are escaped.
    lines = [b"event: " + sent.event.encode(), b"data: " + msgspec.json.encode(sent.data)]
    if sent.id is not None:
        lines.insert(0, b"id: " + sent.id.encode())
    return b"\n".join(lines) + b"\n\n"


async def send_stream(
    send: Send, receive: Receive, answer: Answer, stopping: asyncio.Event
) -> None:
    """Send a stream until it ends, the client leaves, the host stops or its time is up."""
    assert answer.chunks is not None
    start = {"status": answer.status, "headers": list(answer.headers)}
    await send({"type": "http.response.start", **start})
    ends = [
        asyncio.ensure_future(each)
        for each in (_pump(send, answer.chunks), left(receive), stopping.wait())
    ]
    try:
        await asyncio.wait(
            ends, timeout=limits.STREAM_SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED
        )
        if ends[0].done() and (fault := ends[0].exception()) is not None:
            log.error("stream_failed", reason=str(fault), exc_info=fault)
    finally:
        for each in ends:
            each.cancel()
        await asyncio.gather(*ends, return_exceptions=True)
    await send({"type": "http.response.body", "body": b""})


async def _pump(send: Send, source: AsyncIterator[bytes]) -> None:
    try:
        async for chunk in source:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    except RelevoError as error:
        # The client reconnects, and gets the error then if it persists.
        log.info("stream_broken_off", reason=str(error))


async def left(receive: Receive) -> None:
    """Return when the client has disconnected; ignore anything else it sends."""
    while (await receive())["type"] != "http.disconnect":
        pass
