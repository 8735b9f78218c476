"""What becomes of a handler's response on its way out."""

from __future__ import annotations

from datetime import UTC
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

import msgspec

from relevo.http import problem, streaming
from relevo.http.paging import Page
from relevo.http.problem import Answer
from relevo.kernel.operation import Operation, Reply, Stream, Text, Versioned, encoded

if TYPE_CHECKING:
    from relevo.http.request import Head
    from relevo.http.surface import Surface


def encode(operation: Operation, surface: Surface, head: Head, response: Any) -> Answer:
    """Return the answer that carries what a handler returned."""
    if response is None:
        return Answer(204 if operation.status == 200 else operation.status, (), b"")
    headers: problem.Headers = ((b"content-type", problem.JSON),)
    status = operation.status_of(response)
    match response:
        case Stream():
            return Answer(200, streaming.HEADERS, b"", streaming.chunks(response))
        case Text():
            headers = ((b"content-type", response.content_type.encode()),)
        case Reply():
            headers = _reply_headers(response)
        case Versioned():
            changed = format_datetime(response.modified_at.astimezone(UTC), usegmt=True)
            headers += ((b"etag", response.etag.encode()), (b"last-modified", changed.encode()))
        case Page():
            response = surface.page(head, response)
        case _:
            pass
    return Answer(status, headers, encoded(response))


def _reply_headers(reply: Reply) -> problem.Headers:
    kind = {} if reply.body is None else {"content-type": reply.content_type}
    sent = {**kind, **reply.headers}
    return tuple((name.lower().encode(), value.encode()) for name, value in sent.items())


def with_headers(answer: Answer, headers: problem.Headers) -> Answer:
    """Return an answer with more headers."""
    return msgspec.structs.replace(answer, headers=(*answer.headers, *headers))


async def send_answer(send: streaming.Send, head: Head, answer: Answer) -> None:
    """Send an answer that is there whole."""
    headers = list(answer.headers)
    if answer.status != 204:
        headers.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    body = b"" if head.method == "HEAD" else answer.body
    await send({"type": "http.response.body", "body": body})
