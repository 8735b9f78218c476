"""`app.actors.letters`: messages and reminders that are not tried any more."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import Struct

from relevo import limits
from relevo.actors.operating import events
from relevo.actors.operating.administration import ref_of
from relevo.actors.operating.events import ActorData, event_of
from relevo.errors import InvalidValue, NotFound
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from relevo.actors.operating.administration import Named
    from relevo.actors.service import Actors
    from relevo.kernel.events import Event
    from relevo.kernel.pages import Fetched

SQL = catalog.load("relevo.actors")
_NUMBER_MAX: Final = 2**63 - 1


class ActorLetter(Struct, frozen=True, kw_only=True):
    """A dead message or reminder, without its content."""

    id: str
    kind: Literal["message", "reminder"]
    actor: str
    """Canonical id of the actor that should handle it."""
    name: str
    """Of the reminder."""
    sender: str
    """Canonical id of the actor that sent the message; empty if it came from outside of actors."""
    method: str
    attempt: int
    """How often it has failed."""
    since: datetime
    """When the message was sent, or the reminder was due."""
    dead_at: datetime
    error: str


class ActorLetterContent(ActorLetter, frozen=True, kw_only=True):
    """A dead message or reminder."""

    headers: dict[str, str]
    body: bytes
    """MessagePack: the arguments of the message, or the payload of the reminder."""


class LetterPosition(Struct, frozen=True, array_like=True):
    """A dead letter, as its id holds it."""

    number: int
    """Of a message; 0 for a reminder."""
    actor: str = ""
    name: str = ""

    @property
    def id(self) -> str:
        """What names it."""
        if self.number:
            return f"m{self.number}"
        text = msgspec.json.encode((self.actor, self.name))
        return "r" + base64.urlsafe_b64encode(text).rstrip(b"=").decode()

    @classmethod
    def of(cls, letter_id: str) -> LetterPosition:
        """Return what an id names; raises `InvalidValue` if it is none."""
        kind, text = letter_id[:1], letter_id[1:]
        try:
            if kind == "m" and text.isascii() and text.isdigit() and 0 < int(text) <= _NUMBER_MAX:
                return cls(int(text))
            if kind == "r":
                raw = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
                return cls(0, *msgspec.json.decode(raw, type=tuple[str, str]))
        except (ValueError, binascii.Error):
            pass
        raise InvalidValue(f"{letter_id[:80]!r} is no id of a dead letter", pointer="/id")


class Letters:
    """Lists, shows, redrives and discards dead letters of actors."""

    def __init__(self, actors: Actors) -> None:
        self._actors = actors

    async def list(
        self,
        after: str | None = None,
        limit: int = limits.PAGE_ROWS_DEFAULT,
        *,
        actor: Named | None = None,
    ) -> Fetched[ActorLetter]:
        """Return dead letters beyond the id `after`: messages first; of one actor, or of all."""
        last = LetterPosition(0) if after is None else LetterPosition.of(after)
        kind = "message" if after is None or last.number else "reminder"
        page = await self._actors.database.fetch_page(
            SQL.dead_letters, kind, last.number, last.actor, last.name,
            None if actor is None else ref_of(actor).canonical, limit, rows=limit,
        )  # fmt: skip
        return page.each(lambda row: ActorLetter(id=_id(row), **_without_number(row)))

    async def get(self, letter_id: str) -> ActorLetterContent:
        """Return a dead letter; raises `NotFound`."""
        place = LetterPosition.of(letter_id)
        database = self._actors.database
        if place.number:
            row = await database.fetchrow(SQL.dead_message, place.number)
            more: dict[str, Any] = {"kind": "message", "name": ""}
        else:
            row = await database.fetchrow(SQL.dead_reminder, place.actor, place.name)
            more = {"kind": "reminder", "sender": ""}
        if row is None:
            raise _missing(letter_id)
        fields = _without_number(row)
        headers = msgspec.json.decode(fields.pop("headers", "{}"), type=dict[str, str])
        return ActorLetterContent(id=letter_id, headers=headers, **fields, **more)

    async def redrive(self, letter_id: str, *, by: str | None = None) -> None:
        """Let a dead letter be tried again, from its first attempt; raises `NotFound`."""
        place, event = await self._change(letter_id, events.LETTER_REDRIVEN, by)
        stored = self._actors.storage.dead_letters
        if place.number:
            done = await stored.redrive_message(place.number, event)
        else:
            done = await stored.redrive_reminder(place.actor, place.name, event)
        if not done:
            raise _missing(letter_id)

    async def discard(self, letter_id: str, *, by: str | None = None) -> None:
        """Remove a dead letter; raises `NotFound`."""
        place, event = await self._change(letter_id, events.LETTER_DISCARDED, by)
        stored = self._actors.storage.dead_letters
        if place.number:
            done = await stored.discard_message(place.number, event)
        else:
            done = await stored.discard_reminder(place.actor, place.name, event)
        if not done:
            raise _missing(letter_id)

    async def _change(
        self, letter_id: str, name: str, by: str | None
    ) -> tuple[LetterPosition, Event]:
        place, letter = LetterPosition.of(letter_id), await self.get(letter_id)
        what = str(place.number) if place.number else place.name
        return place, event_of(name, ActorData(actor=letter.actor, by=by, name=what))


def _id(row: Any) -> str:
    if row["kind"] == "message":
        return LetterPosition(row["number"]).id
    return LetterPosition(0, row["actor"], row["name"]).id


def _without_number(row: Any) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "number"}


def _missing(letter_id: str) -> NotFound:
    return NotFound(f"there is no dead letter {letter_id[:80]!r}; it may have been redriven")
