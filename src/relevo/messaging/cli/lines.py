"""`relevo queue send` and `receive`: messages from standard input and to standard output.

One message is one line of JSON, in the form of the API: what `receive` writes, `send` takes.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from relevo.cli import exits, tree
from relevo.cli.calling.calls import way_to
from relevo.cli.generic.values import Text
from relevo.cli.options import EVERYWHERE, command
from relevo.cli.output.printing import echo_text, note
from relevo.cli.output.render import Renderer
from relevo.errors import InvalidValue, RelevoError
from relevo.messaging.http.messages import CLAIMED_MAX, WAIT_SECONDS_MAX
from relevo.messaging.http.models import NewMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from relevo.cli.calling.calls import Calls
    from relevo.cli.options import RelevoCommand
    from relevo.cli.session import Session

F = TypeVar("F", bound="Callable[..., Any] | click.Command")

BATCH_MAX: Final = 500
BATCH_BYTES_MAX: Final = 512 * 1024
"""Messages of one request, by number and bytes."""
PROGRESS_SECONDS: Final = 1.0
_FIELDS: Final = frozenset(NewMessage.__struct_fields__)
_ARGUMENTS: Final = {
    "queue": "The queue's name.",
    "topic": "The topic's name.",
    "subscription": "The subscription's name.",
}


def _argument(name: str) -> Callable[[F], F]:
    return click.argument(name, type=Text(), metavar=name.upper(), help=_ARGUMENTS[name])


class Progress:
    """Says on standard error how far it is, on a terminal, and at the end how much was done."""

    def __init__(self, verb: str) -> None:
        self.count = 0
        self._verb = verb
        self._started = self._said = time.monotonic()

    def add(self, count: int) -> None:
        """Count messages; says it once a second."""
        self.count += count
        now = time.monotonic()
        if sys.stderr.isatty() and now - self._said >= PROGRESS_SECONDS:
            self._said = now
            note(f"{self._verb} {self.count:,} messages")

    def summary(self, more: str = "") -> str:
        """Return how many messages, and how fast."""
        seconds = time.monotonic() - self._started
        what = "message" if self.count == 1 else "messages"
        return f"{self._verb} {self.count:,} {what} in {seconds:.1f} s{more}"


def _send_command(kind: str, operation: str) -> RelevoCommand:
    @command("send", shared=EVERYWHERE)
    @_argument(kind)
    @click.argument(
        "file",
        type=click.File("r", encoding="utf-8"),
        default="-",
        metavar="[FILE]",
        help="One message on each line. Default: standard input.",
    )
    @click.option("--text", is_flag=True, help="A line is the body itself, not JSON.")
    @click.option("--priority", type=click.IntRange(0, 9), help="Of messages that name none.")
    @click.option(
        "--priority-class", type=Text(), metavar="CLASS", help="Of messages that name none."
    )
    @click.pass_obj
    def send(session: Session, /, **given: Any) -> int:
        session.log_quietly()
        defaults = {
            name: given[name] for name in ("priority", "priority_class") if given[name] is not None
        }
        lines = _read(given["file"], text=given["text"], defaults=defaults)
        return asyncio.run(_send(session, operation, {kind: given[kind]}, lines))

    send.help = (
        f"Send messages to a {kind}: one on each line, as JSON in the form of the API.\n\n"
        'A line is an object such as {"body": "hello", "priority": 7}, or with --text the body.'
        " Messages go in batches; each is stored as a whole or not at all."
    )
    return send


def _read(file: Any, *, text: bool, defaults: dict[str, Any]) -> Iterator[tuple[int, Any]]:
    """Yield lines as messages, with their numbers."""
    for number, line in enumerate(file, 1):
        line = line.rstrip("\r\n")
        if text:
            yield number, {**defaults, "body": line}
        elif line.strip():
            yield number, {**defaults, **_message(line, number)}


def _message(line: str, number: int) -> dict[str, Any]:
    """Return what can be sent of a line; what only received messages have is left out."""
    try:
        found = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise InvalidValue(f"line {number} is not JSON: {error}; or give --text") from None
    if not isinstance(found, dict) or not found.keys() & {"body", "body_base64"}:
        raise InvalidValue(
            f'line {number} is no message; write it as {{"body": "hello"}}, or give --text'
        )
    return {name: value for name, value in found.items() if name in _FIELDS}


def _batches(lines: Iterator[tuple[int, Any]]) -> Iterator[list[tuple[int, Any]]]:
    batch: list[tuple[int, Any]] = []
    size = 0
    for one in lines:
        length = len(msgspec.json.encode(one[1]))
        if batch and size + length > BATCH_BYTES_MAX:
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += length
        if len(batch) == BATCH_MAX:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


async def _send(
    session: Session, name: str, place: dict[str, str], lines: Iterator[tuple[int, Any]]
) -> int:
    operation = tree.operation(name)
    progress, duplicates = Progress("sent"), 0
    batch: list[tuple[int, Any]] = []
    async with way_to(operation, session) as calls:
        try:
            for batch in _batches(lines):
                values = {**place, "messages": [message for _, message in batch]}
                reply = await calls.call(operation, values)
                items = msgspec.json.decode(reply.body)["items"]
                duplicates += sum(one["duplicate"] for one in items)
                progress.add(len(batch))
                batch = []
        except RelevoError as error:
            error.message = f"{_unsent(batch)}{error.message}; {progress.count:,} messages before"
            error.message += " that were sent"
            raise
    more = f", {duplicates:,} of them duplicates" if duplicates else ""
    if session.output != "table":
        sent = {"sent": progress.count, "duplicates": duplicates}
        Renderer(session.output).data(sent, line=True)
    else:
        note(progress.summary(more))
    return exits.OK


def _unsent(batch: Sequence[tuple[int, Any]]) -> str:
    """Return which lines were refused; nothing if a line could not even be read."""
    if not batch:
        return ""
    first, last = batch[0][0], batch[-1][0]
    return f"line {first} not sent: " if first == last else f"lines {first} to {last} not sent: "


def _receive_command(kinds: tuple[str, ...], nouns: dict[bool, str]) -> RelevoCommand:
    """Return a command that receives; `nouns` are those of the operations, of dead letters too."""

    @command("receive", shared=EVERYWHERE)
    @click.option("--count", type=click.IntRange(1), metavar="N", help="End after N messages.")
    @click.option(
        "--wait",
        type=click.FloatRange(0.0),
        default=0.0,
        metavar="SECONDS",
        help="End when no message comes for this time. Default: 0, when there is none.",
    )
    @click.option("--follow", is_flag=True, help="Go on until Ctrl-C.")
    @click.option("--text", is_flag=True, help="Write only bodies, not JSON lines.")
    @click.option("--dead-letters", is_flag=True, help="Receive its dead letters.")
    @click.pass_obj
    def receive(session: Session, /, **given: Any) -> int:
        session.log_quietly()
        place = {kind: given[kind] for kind in kinds}
        return asyncio.run(_receive(session, nouns[given["dead_letters"]], place, given))

    for kind in kinds:
        receive = _argument(kind)(receive)
    receive.help = (
        f"Receive messages of a {kinds[-1]}: writes one on each line, as JSON.\n\n"
        "A message is completed when its line is written. What is received and not written, after"
        " Ctrl-C for instance, is given back."
    )
    return receive


async def _receive(
    session: Session, noun: str, place: dict[str, str], given: dict[str, Any]
) -> int:
    operation = tree.operation(f"{noun}.claim")
    progress, count, written = Progress("received"), given["count"], Renderer(session.output)
    async with way_to(operation, session) as calls:
        while count is None or progress.count < count:
            left = CLAIMED_MAX if count is None else min(CLAIMED_MAX, count - progress.count)
            messages = await _claim(calls, noun, place, left, given)
            if not messages:
                break
            renderer = None if given["text"] else written
            await _write(calls, noun, place, messages, renderer, progress=progress)
    if sys.stderr.isatty() or session.output == "table":
        note(progress.summary())
    return exits.OK


async def _claim(
    calls: Calls, noun: str, place: dict[str, str], most: int, given: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return messages; none if none came in time."""
    operation = tree.operation(f"{noun}.claim")
    end = time.monotonic() + given["wait"]
    while True:
        left = WAIT_SECONDS_MAX / 3 if given["follow"] else end - time.monotonic()
        seconds = max(0.0, min(left, WAIT_SECONDS_MAX / 3))
        values = {**place, "max_messages": most, "wait_seconds": seconds}
        found = msgspec.json.decode((await calls.call(operation, values)).body)["items"]
        if found or not (given["follow"] or end > time.monotonic()):
            return list(found)


async def _write(
    calls: Calls,
    noun: str,
    place: dict[str, str],
    messages: Sequence[dict[str, Any]],
    renderer: Renderer | None,
    *,
    progress: Progress,
) -> None:
    """Write messages, or without a renderer only their bodies, and complete them.

    Those that were not written are given back.
    """
    written = 0
    try:
        for message in messages:
            if renderer is None:
                body = message.get("body", message.get("body_base64"))
                echo_text(body if isinstance(body, str) else msgspec.json.encode(body).decode())
            else:
                renderer.data(message, line=True)
            written += 1
    finally:
        await asyncio.gather(
            *(_settle(calls, f"{noun}.complete", place, one) for one in messages[:written]),
            *(_settle(calls, f"{noun}.release", place, one) for one in messages[written:]),
        )
    progress.add(written)


async def _settle(calls: Calls, name: str, place: dict[str, str], message: dict[str, Any]) -> None:
    await calls.call(tree.operation(name), {**place, "token": message["lock_token"]})


send_to_queue = _send_command("queue", "messages.send_batch")
send_to_topic = _send_command("topic", "topics.messages.send_batch")
receive_from_queue = _receive_command(("queue",), {False: "messages", True: "dead_letters"})
receive_from_subscription = _receive_command(
    ("topic", "subscription"),
    {False: "subscriptions.messages", True: "subscriptions.dead_letters"},
)
