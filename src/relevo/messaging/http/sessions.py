"""`…/sessions`: messages that belong together, for one receiver at a time.

Accepting a session answers a holder number; every later request about the session names it, so
that an old holder is refused once another has the session.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta, Struct

from relevo import limits
from relevo.errors import Conflict, EntityDisabled, NotFound, SessionLockLost, SessionTaken
from relevo.http import paging
from relevo.http.paging import Cursor, Limit, Page
from relevo.kernel.operation import OperationOptions, Operations
from relevo.kernel.pages import first
from relevo.messaging.http.entities import record_of
from relevo.messaging.http.messages import CLAIMED_MAX, WAIT_SECONDS_MAX, answer_of
from relevo.messaging.http.models import Instant, ReceivedBatch
from relevo.messaging.http.places import ENTITIES, Addressed, each
from relevo.messaging.sessions import Session, SessionInfo

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

operation = Operations()

PLACES: Final = tuple(
    msgspec.structs.replace(one, noun=one.noun.replace("messages", "sessions")) for one in ENTITIES
)
_ACCEPT: Final[OperationOptions] = {"errors": (NotFound, Conflict, EntityDisabled, SessionTaken)}
_HELD: Final[OperationOptions] = {"errors": (NotFound, Conflict, EntityDisabled, SessionLockLost)}
WaitSeconds = Annotated[
    float, Meta(ge=0, le=WAIT_SECONDS_MAX, description="How long to wait for one.")
]


class HeldSession(Struct, frozen=True, kw_only=True):
    """A session that is held."""

    session_id: str
    holder: int
    """Which holder this is: say it in every request about the session."""
    locked_until: datetime | None


class NextSession(Struct, frozen=True):
    """The session whose first message was next; null if none came in time."""

    session: HeldSession | None


class SessionState(Struct, frozen=True):
    """What holders of a session have stored for the next one, in base64; null if nothing."""

    state: bytes | None


def _held(session: Session) -> HeldSession:
    return HeldSession(
        session_id=session.session_id, holder=session.holder, locked_until=session.locked_until
    )


class ListSessions(Addressed, Struct, frozen=True, kw_only=True):
    """Which page of sessions."""

    updated_since: (
        Annotated[Instant, Meta(description="Only those whose holder or state changed since.")]
        | None
    ) = None
    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


@each(
    operation, PLACES, "list", "GET {}/sessions", "queues:read", "List the sessions of {}.",
    errors=(NotFound,),
)  # fmt: skip
async def list_sessions(
    services: Services, _: Principal, command: ListSessions
) -> Page[SessionInfo]:
    """List sessions that have messages, a holder or a state."""
    record = await record_of(services, command)
    found = await services.app.messaging.tools.sessions.list(
        record, after=paging.decode(command.cursor, str) or "", limit=command.limit + 1,
        since=command.updated_since,
    )  # fmt: skip
    return paging.page(services.page_bytes, first(found, command.limit), lambda one: one.session_id)


class BySession(Addressed, Struct, frozen=True, kw_only=True):
    """Which session."""

    session: Annotated[
        str, Meta(max_length=limits.MESSAGE_ID_LENGTH_MAX, description="The session's id.")
    ]


@each(
    operation, PLACES, "accept", "POST {}/sessions/{session}:accept", "messages:receive",
    "Hold a session of {}.", _ACCEPT,
)  # fmt: skip
async def accept(services: Services, _: Principal, command: BySession) -> HeldSession:
    """Hold a session."""
    record = await record_of(services, command)
    return _held(await services.app.messaging.tools.sessions.accept(record, command.session))


class AcceptNext(Addressed, Struct, frozen=True, kw_only=True):
    """How long to wait for a session."""

    wait_seconds: WaitSeconds = 0.0


@each(
    operation, PLACES, "accept_next", "POST {}/sessions:accept", "messages:receive",
    "Hold the session of {} whose first message is next; waits for one.", _ACCEPT,
    wait="wait_seconds",
)  # fmt: skip
async def accept_next(services: Services, _: Principal, command: AcceptNext) -> NextSession:
    """Hold the session whose first message is next."""
    record = await record_of(services, command)
    sessions = services.app.messaging.tools.sessions
    found = await sessions.accept_next(record, command.wait_seconds)
    return NextSession(None if found is None else _held(found))


class ByHolder(BySession, frozen=True, kw_only=True):
    """Which session, for which holder."""

    holder: Annotated[
        int, Meta(ge=0, le=2**63 - 1, description="The number that accepting it answered.")
    ]


async def _session(services: Services, command: ByHolder) -> Session:
    record = await record_of(services, command)
    sessions = services.app.messaging.tools.sessions
    return await sessions.held(record, command.session, command.holder)


class ReceiveOfSession(ByHolder, frozen=True, kw_only=True):
    """How many messages of a session."""

    max_messages: Annotated[int, Meta(ge=1, le=CLAIMED_MAX, description="At most so many.")] = 1
    wait_seconds: WaitSeconds = 0.0


@each(
    operation, PLACES, "claim", "POST {}/sessions/{session}/messages:claim", "messages:receive",
    "Receive the next messages of a session of {}; waits for the first one.", _HELD,
    wait="wait_seconds",
)  # fmt: skip
async def claim(services: Services, _: Principal, command: ReceiveOfSession) -> ReceivedBatch:
    """Receive the next messages of a session; settle them by their lock tokens."""
    session = await _session(services, command)
    received = await session.receive(command.max_messages, wait=command.wait_seconds)
    return await answer_of(services, received, "peek_lock")


@each(
    operation, PLACES, "renew", "POST {}/sessions/{session}:renew", "messages:receive",
    "Hold a session of {}, and its messages, for another lock duration.", _HELD,
)  # fmt: skip
async def renew(services: Services, _: Principal, command: ByHolder) -> HeldSession:
    """Hold a session, and its messages, for another lock duration."""
    session = await _session(services, command)
    await session.renew()
    return _held(session)


class CloseSession(ByHolder, frozen=True, kw_only=True):
    """Which session is given back."""

    lost: Annotated[
        bool, Meta(description="Count the messages that are not settled as failed deliveries.")
    ] = False


@each(
    operation, PLACES, "close", "POST {}/sessions/{session}:close", "messages:receive",
    "Give a session of {} back, with what is not settled.", _HELD,
)  # fmt: skip
async def close(services: Services, _: Principal, command: CloseSession) -> None:
    """Give a session back, with what is not settled."""
    await (await _session(services, command)).close(lost=command.lost)


@each(
    operation, PLACES, "state", "GET {}/sessions/{session}/state", "messages:receive",
    "Show what the holders of a session of {} have stored.", _HELD,
)  # fmt: skip
async def get_state(services: Services, _: Principal, command: ByHolder) -> SessionState:
    """Show what the holders of a session have stored."""
    return SessionState(await (await _session(services, command)).get_state())


class SetState(ByHolder, frozen=True, kw_only=True):
    """What is stored for the next holder."""

    state: (
        Annotated[bytes, Meta(description="In base64, at most 256 KiB. Without it, none is kept.")]
        | None
    ) = None


@each(
    operation, PLACES, "set_state", "PUT {}/sessions/{session}/state", "messages:receive",
    "Store something for the next holder of a session of {}.", _HELD,
)  # fmt: skip
async def set_state(services: Services, _: Principal, command: SetState) -> None:
    """Store something for the next holder of a session, or remove it."""
    await (await _session(services, command)).set_state(command.state)
