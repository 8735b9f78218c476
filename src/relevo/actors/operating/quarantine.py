"""`app.actors.quarantine`: actors whose stored state cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from relevo import limits
from relevo.actors.operating import events
from relevo.actors.operating.administration import ref_of
from relevo.actors.operating.events import ActorData, event_of
from relevo.errors import InvalidValue, NotFound

if TYPE_CHECKING:
    from relevo.actors.core.identity import ActorRef
    from relevo.actors.operating.administration import Named
    from relevo.actors.service import Actors
    from relevo.actors.storing.stored_actors import QuarantinedActor
    from relevo.kernel.events import Event
    from relevo.kernel.pages import Fetched


class Quarantine:
    """Lists actors in quarantine, and repairs their state.

    An actor is put there when its state cannot be decoded or upgraded. Calls raise `StatePoisoned`
    until it is let out; nothing of it is lost meanwhile. A host notices within 30 s.
    """

    def __init__(self, actors: Actors) -> None:
        self._actors = actors

    async def list(
        self, after: str = "", limit: int = limits.PAGE_ROWS_DEFAULT
    ) -> Fetched[QuarantinedActor]:
        """Return actors in quarantine beyond the canonical id `after`."""
        return await self._actors.storage.actors.quarantined(after, limit)

    async def export(self, actor: Named) -> bytes:
        """Return the state of an actor in quarantine, as it is stored; raises `NotFound`."""
        ref = ref_of(actor)
        record = await self._actors.administration.get(ref)
        if record is None or record.quarantined_at is None:
            raise _not_there(ref)
        return (await self._actors.storage.load(ref.canonical)).document or b""

    async def replace(
        self, actor: Named, document: bytes, *, schema: int = 1, by: str | None = None
    ) -> None:
        """Let an actor out with another state, in MessagePack; raises `NotFound`."""
        if len(document) > limits.ACTOR_STATE_BYTES_MAX:
            raise InvalidValue(
                f"the state has {len(document):,} bytes; at most"
                f" {limits.ACTOR_STATE_BYTES_MAX:,} are stored",
                pointer="/document",
            )
        try:
            msgspec.msgpack.decode(document)
        except msgspec.MsgspecError as error:
            raise InvalidValue(
                f"the new state is not MessagePack: {error}", pointer="/document"
            ) from error
        ref = ref_of(actor)
        event = _event(events.STATE_REPLACED, ref, by)
        if not await self._actors.storage.actors.replace(ref.canonical, document, schema, event):
            raise _not_there(ref)

    async def reset(self, actor: Named, *, by: str | None = None) -> None:
        """Let an actor out with its default state; map entries and reminders stay."""
        ref = ref_of(actor)
        event = _event(events.STATE_RESET, ref, by)
        if not await self._actors.storage.actors.reset(ref.canonical, event):
            raise _not_there(ref)

    async def retry(self, actor: Named, *, by: str | None = None) -> None:
        """Let an actor out with its state as it is, such as after a correction of the code."""
        ref = ref_of(actor)
        event = _event(events.STATE_RETRIED, ref, by)
        if not await self._actors.storage.actors.retry(ref.canonical, event):
            raise _not_there(ref)


def _event(name: str, ref: ActorRef, by: str | None) -> Event:
    return event_of(name, ActorData(actor=ref.canonical, by=by))


def _not_there(ref: ActorRef) -> NotFound:
    return NotFound(f"{ref} is not in quarantine")
