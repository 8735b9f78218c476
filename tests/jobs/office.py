"""What tests of jobs share: a client, hosts in this process, and looks at the rows."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import msgspec

from relevo import App, settings
from relevo.jobs import parcels
from relevo.jobs.running.claims import JobClaim

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from contextlib import AsyncExitStack

    import asyncpg

    from relevo.jobs.service import JobHandle
    from relevo.kernel.postgres import Database

ROWS = (
    "(select * from relevo.job union all select * from relevo.job_history union all"
    " select * from relevo.jobs_in_parcels())"
)
"""Every job, wherever it stands and whether or not people see it."""
PARCELS = "create or replace function relevo.parcel_min() returns integer immutable return {}"
"""From how many jobs on claims are parcels."""
QUICK = {"lease_expiration": 3.0, "lease_renew": 0.5, "lease_acquire": 1.0}


class Office:
    """A client of a database, and the hosts that a test starts on it."""

    def __init__(self, url: str, database: Database, stack: AsyncExitStack, app: App) -> None:
        self.url = url
        self.database = database
        self.stack = stack
        self.app = app
        self.jobs = app.jobs

    @classmethod
    async def open(cls, url: str, database: Database, stack: AsyncExitStack) -> Office:
        app = await stack.enter_async_context(App(settings=told(url)))
        return cls(url, database, stack, app)

    def new_app(self, name: str = "a", **options: object) -> App:
        return App(settings=told(self.url, host_name=name, **options))

    async def serve(self, app: App) -> App:
        """Let an app claim and run jobs until the test ends."""
        await self.stack.enter_async_context(app.host())
        return app

    async def host(self, handlers: dict[str, Any], name: str = "a", **options: Any) -> App:
        """Start a host with handlers; `lane` and the like go to each of them."""
        jobs = {
            key: options.pop(key)
            for key in ("lane", "timeout", "token", "retries")
            if key in options
        }
        app = self.new_app(name, **options)
        for key, function in handlers.items():
            app.job(key, **jobs)(function)
        return await self.serve(app)

    async def row(self, job: JobHandle[Any] | UUID) -> asyncpg.Record:
        """The row of a job, wherever it stands and whether or not people see it."""
        id_ = job if isinstance(job, UUID) else job.id
        found = await self.database.fetchrow(
            f"select * from {ROWS} j where id = $1",
            id_,
        )
        assert found is not None, f"there is no row {id_}"
        return found

    async def status(self, job: JobHandle[Any]) -> int | None:
        sql = "select status from relevo.jobs where id = $1"
        found: int | None = await self.database.fetchval(sql, job.id)
        return found

    async def until_status(self, job: JobHandle[Any], *wanted: int | None) -> None:
        async def reached() -> bool:
            return await self.status(job) in wanted

        async def told() -> str:
            return f"job {job.id} is {await self.status(job)}, not {wanted}"

        await until(reached, told)

    async def events(self, job: JobHandle[Any]) -> list[str]:
        """What the log says of a job, in the order of its versions."""
        rows = await self.database.fetch(
            "select type from relevo.event where subject = $1 order by version, lsn",
            f"job/{job.id}",
        )
        return [row["type"].removeprefix("relevo.job.") for row in rows]


def told(url: str, **options: object) -> settings.Settings:
    values = {"database_url": url, "drain_seconds": 5.0, **QUICK, **options}
    return settings.load(values, environ={})


async def until(
    condition: Callable[[], bool | Awaitable[bool]],
    what: str | Callable[[], Awaitable[str]],
    timeout: float = 20.0,
) -> None:
    """Wait until a condition holds."""
    give_up = time.monotonic() + timeout
    while True:
        held = condition()
        if not isinstance(held, bool):
            held = await held
        if held:
            return
        if time.monotonic() > give_up:
            raise AssertionError(f"not in time: {what if isinstance(what, str) else await what()}")
        await asyncio.sleep(0.005)


class Worker:
    """The host's side of the SQL functions, one call at a time; no process, no loop."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.lanes: dict[str, str] = {}
        """By handler, where it is not `default`."""
        self.host = uuid4()
        self.number = 0
        self.held: dict[UUID, Any] = {}

    async def join(self) -> Worker:
        """Write the row of a host, so that it counts as alive."""
        await self.connection.execute(
            "insert into relevo.host (incarnation, name, lease_until, started_at, version) values"
            " ($1, $2, relevo.now() + interval '1 day', relevo.now(), '0')",
            self.host,
            f"worker {self.host}",
        )
        return self

    async def end(self) -> None:
        """Be found dead."""
        await self.connection.execute(
            "update relevo.host set ended_at = relevo.now(), end_reason = 'lapsed'"
            " where incarnation = $1",
            self.host,
        )

    async def work(
        self,
        room: int = 0,
        handlers: Sequence[str] = ("work",),
        settle: Sequence[tuple[Any, str]] = (),
        **options: Any,
    ) -> list[Any]:
        """Settle jobs that it holds (row, event) and claim; returns what was claimed."""
        self.number += 1
        serving = [self.lanes.get(one, "default") for one in handlers]
        lanes = sorted(set(serving)) if room else []
        keys = sorted({f"c{row['chain']}" for row, _ in settle if row["chain"]})
        rows = await self.connection.fetch(
            "select * from relevo.serve_jobs($1, 'worker', $2, $3::text[], $4::integer[],"
            " $5::text[], $6::text[], $7::uuid[], $8::text[], $9::bigint[],"
            " delays => $10::float8[], keys => $11::text[], slots => $12::integer[],"
            " vacant => $13)",
            self.host, self.number, lanes, [room] * len(lanes), serving, list(handlers),
            [row["id"] for row, _ in settle], [event for _, event in settle],
            [row["claim"] for row, _ in settle], options.get("delays", []), keys,
            options.get("slots", []), options.get("vacant", False),
        )  # fmt: skip
        for row, _ in settle:
            self.held.pop(row["id"], None)
        self.stale = [row["id"] for row in rows if row["kind"] == "stale"]
        self.lone_waits = any(row["kind"] == "lone" for row in rows)
        return self._taken(rows)

    async def take_lone(self, handlers: Sequence[str] = ("work",), *, vacant: bool = True) -> Any:
        """Claim a job that is to run alone; returns it, or None."""
        self.number += 1
        rows = await self.connection.fetch(
            "select * from relevo.claim_lone_job($1, 'worker', $2, $3::text[], $4::text[], $5)",
            self.host, self.number, [self.lanes.get(one, "default") for one in handlers],
            list(handlers), vacant,
        )  # fmt: skip
        return next(iter(self._taken(rows)), None)

    def _taken(self, rows: Sequence[Any]) -> list[dict[str, Any]]:
        claimed = [one for row in rows for one in _claims(row)]
        self.held |= {row["id"]: row for row in claimed}
        return claimed


def _claims(row: Any) -> list[dict[str, Any]]:
    """The jobs that a row tells of, if it is of claims, with what only few of them have."""
    found = {
        "claimed": lambda: [JobClaim.of(row, 0.0)], "parcel": lambda: parcels.claims_in(row, 0.0),
    }.get(row["kind"], list[JobClaim])()  # fmt: skip
    return [{**row, "claim": one.number, **msgspec.structs.asdict(one)} for one in found]


class Stage:
    """Lets a test and a handler wait for each other."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.go = asyncio.Event()
        self.calls: list[Any] = []

    async def pass_by(self, call: Any = None) -> None:
        self.calls.append(call)
        self.entered.set()
        await self.go.wait()
