"""Dead letters: changes that a processor gave up on, kept until redriven or discarded."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID, uuid4

from msgspec import Struct

from relevo import limits
from relevo.errors import Conflict, HandlerError, InvalidValue, NotFound, OutcomeUnknown
from relevo.feed.model import Change, Operation
from relevo.feed.processing import parking
from relevo.feed.processing.calls import CallWatch, call
from relevo.feed.processing.context import ChangeContext
from relevo.feed.processing.journal import FailureCause
from relevo.kernel import error_text
from relevo.kernel.leases.model import Fence
from relevo.kernel.postgres import catalog
from relevo.kernel.running.calls import Limits
from relevo.store.ranges import WHOLE

if TYPE_CHECKING:
    import asyncpg

    from relevo.feed.processing.processor import Processor
    from relevo.kernel.pages import Fetched
    from relevo.kernel.postgres import Database, Transaction

SQL = catalog.load("relevo.feed")
ATTEMPTS_DEFAULT = 5
REDRIVE_SECONDS_MAX = 300.0
"""Seconds that a redriven call may take if the processor has no time limit of its own."""
CLAIM_SECONDS_MORE = 60.0
"""A claim lasts longer than the call, and expires if its process is killed."""
Image = Literal["current", "stored"]


def check(max_attempts: int | None, dead_letter: bool, on_poison: str) -> int | None:
    """Return after how many failures a change is given up; None is never."""
    if on_poison not in ("skip", "block_key", "halt"):
        raise InvalidValue(f"on_poison is 'skip', 'block_key' or 'halt', not {on_poison!r}")
    if not dead_letter and (max_attempts is not None or on_poison != "skip"):
        raise InvalidValue(
            "max_attempts and on_poison need dead_letter=True; without dead letters a batch is"
            " tried for ever"
        )
    if max_attempts is not None and max_attempts < 1:
        raise InvalidValue(f"max_attempts is at least 1, not {max_attempts}")
    return (max_attempts or ATTEMPTS_DEFAULT) if dead_letter else None


class DeadLetter(Struct, frozen=True, kw_only=True):
    """One change that was given up, and why."""

    id: int
    token: str
    """The lease that gave it up."""
    incarnation: UUID
    range_id: int
    lsn: int
    ordinal: int
    ts: datetime
    pk: str
    """Canonical partition key."""
    item_id: str
    operation: Operation | None
    body: str | None
    """The item's JSON at that change."""
    previous: str | None
    previous_lsn: int | None
    ttl_expired: bool
    reason: Literal["failed", "crash", "parked"]
    """`parked` is a change that waits behind an earlier one of its key."""
    error_type: str
    message: str
    traceback: str
    attempts: int
    first_failed_at: datetime
    last_failed_at: datetime
    instance: str
    handler: str

    def change(self, model: Any) -> Change[Any]:
        """The change as it was."""
        return Change(
            incarnation=str(self.incarnation), origin=self.range_id, lsn=self.lsn,
            ordinal=self.ordinal, stamp=self.ts.timestamp(), id=self.item_id, key=self.pk,
            raw=self.body, raw_previous=self.previous, operation=self.operation,
            previous_lsn=self.previous_lsn, ttl_expired=self.ttl_expired, model=model,
        )  # fmt: skip


def read(row: asyncpg.Record) -> DeadLetter:
    """Return the dead letter of a row."""
    return DeadLetter(**{name: row[name] for name in DeadLetter.__struct_fields__})


class DeadLetters:
    """The dead letters of one unit."""

    def __init__(self, database: Database, unit: str, processor: Processor | None) -> None:
        self._database = database
        self._unit = unit
        self._processor = processor

    async def list(self, after: int = 0, limit: int = limits.PAGE_ROWS_DEFAULT) -> list[DeadLetter]:
        """Return dead letters, oldest first; `after` is the id of the last one seen."""
        if not 1 <= limit <= limits.PAGE_ROWS_MAX:
            raise InvalidValue(f"limit is 1 to {limits.PAGE_ROWS_MAX}, not {limit}")
        unit_id = await self._unit_id()
        return [
            read(row)
            for row in await self._database.fetch(SQL.list_dead_letters, unit_id, after, limit)
        ]

    async def page(self, after: int, limit: int) -> Fetched[DeadLetter]:
        """Return the same, within the byte limit of a page."""
        unit_id = await self._unit_id()
        found = await self._database.fetch_page(
            SQL.list_dead_letters, unit_id, after, limit + 1, rows=limit
        )
        return found.each(read)

    async def get(self, id: int) -> DeadLetter:  # noqa: A002 - the public name of it
        """Return one dead letter; raises `NotFound` if there is none."""
        row = await self._database.fetchrow(SQL.find_dead_letter, await self._unit_id(), id)
        if row is None:
            raise NotFound(f"{self._unit} has no dead letter {id}; was it redriven or discarded?")
        return read(row)

    async def discard(self, id: int) -> None:  # noqa: A002 - the public name of it
        """Forget a letter; its change is never delivered.

        Changes that were parked behind it stay parked: redrive the first of them.
        """
        letter, unit_id = await self.get(id), await self._unit_id()

        async def remove(tx: Transaction) -> bool:
            await parking.lock_keys(tx, unit_id, [letter.pk])
            return bool(await tx.fetch(SQL.discard_dead_letter, unit_id, id))

        if not await self._database.run(remove):
            await self.get(id)
            raise Conflict(f"dead letter {id} is being redriven; wait until that has ended")

    async def redrive(self, id: int, image: Image = "current") -> None:  # noqa: A002
        """Deliver a letter through the handler, here and now; success removes it.

        In latest-version mode the item's current version is delivered if it still exists, unless
        `image="stored"`. Raises `HandlerError` if the handler fails again; then the letter stays.
        Changes that were parked behind it follow one by one, until one of them fails.
        """
        if image not in ("current", "stored"):
            raise InvalidValue(f"image is 'current' or 'stored', not {image!r}")
        processor = self._processor
        if processor is None:
            raise Conflict(
                f"this app defines no processor for {self._unit}; redrive in a process that"
                " defines it"
            )
        seconds = processor.settings.delegate_timeout or REDRIVE_SECONDS_MAX
        unit_id, following = await self._unit_id(), True
        while following:
            letter, claim = await self.get(id), uuid4()
            await self._claim(letter, claim, seconds)
            await _Redrive(self._database, processor, unit_id, letter, claim, seconds).run(image)
            row = await self._database.fetchrow(
                SQL.next_parked, unit_id, letter.pk, letter.lsn, letter.ordinal
            )
            following = row is not None
            id = row["id"] if row is not None else id  # noqa: A001

    async def _claim(self, letter: DeadLetter, claim: UUID, seconds: float) -> None:
        unit_id = await self._unit_id()
        if not await self._database.write(
            SQL.claim_dead_letter, unit_id, letter.id, claim, seconds + CLAIM_SECONDS_MORE
        ):
            await self.get(letter.id)
            raise Conflict(
                f"dead letter {letter.id} is being redriven, or an older one of the key"
                f" {letter.pk} comes first; redrive or discard that one"
            )

    async def _unit_id(self) -> int:
        unit_id: int | None = await self._database.fetchval(SQL.find_unit_id, self._unit)
        if unit_id is None:
            raise NotFound(f"no processor was ever started for {self._unit}")
        return unit_id


class _Taken(Conflict):
    """The claim expired, and another process took the letter."""


class _NoLease:
    """Stands for the lease in a redriven call."""

    def __init__(self, token: str, unit: str) -> None:
        self.name = token
        self.epoch = 0
        self.may_act = True
        self.fence = Fence(0, 0, unit, token)
        self.stopping = asyncio.Event()


class _Redrive:
    """One dead letter on its way through the handler."""

    def __init__(
        self,
        database: Database,
        processor: Processor,
        unit_id: int,
        letter: DeadLetter,
        claim: UUID,
        seconds: float,
    ) -> None:
        self._database = database
        self._processor = processor
        self._unit_id = unit_id
        self._letter = letter
        self._claim = claim
        self._seconds = seconds

    async def run(self, image: Image) -> None:
        change = await self._change(image)
        ctx = self._context()
        try:
            watch = CallWatch(limits=Limits(time_limit=self._seconds))
            await call(self._processor.handler, ctx, [change], watch)
            await ctx.end_call()
            if not ctx.confirmed:
                await ctx.confirm()
        except _Taken:
            raise
        except (OutcomeUnknown, asyncio.CancelledError) as error:
            await self._give_back(ctx, error)
            raise
        except Exception as error:
            await self._give_back(ctx, error)
            shown = error_text.shown(error)
            raise HandlerError(
                f"dead letter {self._letter.id} failed again: {shown}; it stays", context=ctx
            ) from error

    async def _give_back(self, ctx: ChangeContext, error: BaseException) -> None:
        """Release the claim; the dead letter stays."""
        with suppress(HandlerError):
            await ctx.end_call()
        cause = FailureCause.of(error, self._letter.attempts + 1)
        await self._database.write(
            SQL.return_dead_letter, self._letter.id, self._claim,
            cause.error_type, cause.message, cause.traceback,
        )  # fmt: skip

    async def _change(self, image: Image) -> Change[Any]:
        letter, model = self._letter, self._processor.settings.model
        stored = letter.change(model)
        if image == "stored" or self._processor.settings.mode != "latest":
            return stored
        row = await self._database.fetchrow(
            SQL.current_version, letter.incarnation, letter.pk, letter.item_id
        )
        if row is None:
            return stored
        return Change(
            incarnation=str(letter.incarnation), origin=row["range_id"], lsn=row["lsn"],
            ordinal=row["ordinal"], stamp=row["ts"].timestamp(), id=letter.item_id,
            key=letter.pk, raw=row["body"], model=model,
        )  # fmt: skip

    def _context(self) -> ChangeContext:
        async def confirm(change: Change[Any] | None) -> bool:
            await self._database.run(remove, idempotent=False)
            return True

        async def remove(tx: Transaction) -> None:
            await parking.lock_keys(tx, self._unit_id, [self._letter.pk])
            if not await tx.fetch(SQL.remove_dead_letter, self._letter.id, self._claim):
                raise _Taken(
                    f"dead letter {self._letter.id} was taken by another redrive meanwhile;"
                    " nothing was written"
                )

        lease = _NoLease(self._letter.token, self._processor.unit_name)
        return ChangeContext(
            lease, WHOLE, self._letter.attempts + 1, confirm=confirm, redrive=True,
            open_transaction=self._database.transaction, confirm_in=remove,
            committed=lambda: None,
        )  # fmt: skip
