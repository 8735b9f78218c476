"""Cells: tenants spread over databases; each tenant is in one, and can be moved to another.

cells = relevo.Cells(app, "tenants")
await cells.add("cell-2", "postgresql://…")
async with cells.use("acme") as cell:      # the App of the database in which acme is
    await cell.container("orders").create({"id": "1"})
"""

from __future__ import annotations

import asyncio
import base64
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from relevo.errors import Conflict, NotFound, SettingsError
from relevo.governance.errors import UnassignedEntity
from relevo.kernel.part import Part

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from relevo.governance.calls.resolver_calls import ResolverView
    from relevo.governance.core.assignments import Resource
    from relevo.governance.resolvers import Resolver
    from relevo.governance.service import Governance
    from relevo.kernel.part import Parts
    from relevo.kernel.sealing import Vault
    from relevo.settings import Settings


class CellApp(Protocol):
    """What cells need of an app; `relevo.App` has it."""

    settings: Settings
    governance: Governance
    vault: Vault
    parts: Parts

    def __init__(self, *, settings: Settings) -> None: ...

    async def connect(self) -> None:
        """Connect to the database, and migrate it."""

    async def close(self) -> None:
        """Disconnect."""


A = TypeVar("A", bound=CellApp)


class Cell(Struct, frozen=True):
    """A database for tenants."""

    name: str
    tenants: int
    capacity: float
    """How many tenants it takes beside the others."""
    draining: bool
    """Whether no new tenant comes here."""


class Cells(Generic[A]):
    """A catalogue of tenants and the databases in which they are, kept in the app's database.

    `use` gives the app of a tenant's database. The first use of a tenant places it on the cell with
    the most room. A tenant is in one cell at a time: while it is moved, uses wait. The addresses of
    cells are stored encrypted, under the master key of the installation.
    """

    def __init__(
        self,
        app: A,
        name: str,
        *,
        max_stale: float = 5.0,
        max_pause: float = 10.0,
        use_ttl: float = 60.0,
    ) -> None:
        """Name a catalogue; no I/O.

        A use waits `max_pause` seconds for a tenant that is being moved, and takes `use_ttl`
        seconds at most. Processes know where tenants are for `max_stale` seconds without asking.
        """
        self.name = name
        self._app = app
        self._resolver: Resolver = app.governance.resolver(
            name, assign="explicit", max_stale=max_stale, max_pause=max_pause, use_ttl=use_ttl
        )
        self._apps: dict[str, asyncio.Task[A]] = {}
        """Those that are connected, or about to be, by the address of the database."""
        app.parts.add(_CellsPart(self))

    async def add(self, cell: str, database_url: str, *, capacity: float = 1.0) -> None:
        """Add a database, or change its address or capacity; it is migrated when first used."""
        view = await self._resolver.view()
        known = _resource(view, cell)
        if (
            known is None or known.capacity != capacity
            or await self._address(known) != database_url
        ):  # fmt: skip
            key = await self._app.vault.key()
            sealed = key.seal(database_url.encode(), self._owner(cell))
            data = {"sealed_url": base64.b64encode(sealed).decode()}
            await self._resolver.add_resource(cell, data, capacity=capacity)

    async def list(self) -> list[Cell]:
        """Return the cells by name."""
        view = await self._resolver.view()
        return sorted(
            (Cell(one.name, view.tallies[one.name].partitions, one.capacity, one.draining)
             for one in view.resources),
            key=lambda one: one.name,
        )  # fmt: skip

    async def cell_of(self, tenant: str) -> str | None:
        """Return the name of the cell in which a tenant is; None if it was never used."""
        partition = await self._resolver.partition(tenant)
        return None if partition is None else partition.resource

    @asynccontextmanager
    async def use(self, tenant: str) -> AsyncIterator[A]:
        """Run the body with the app of a tenant's database; the tenant is not moved meanwhile.

        Raises `Moving` if the tenant is being moved for longer than `max_pause`. The body is
        canceled, with `TimeoutError`, when it takes longer than `use_ttl`.
        """
        async with AsyncExitStack() as stack:
            try:
                found = await stack.enter_async_context(self._resolver.use(tenant))
            except UnassignedEntity:
                await self.place(tenant)
                found = await stack.enter_async_context(self._resolver.use(tenant))
            yield await self._open(found.resource)

    async def place(self, tenant: str, *, on: str | None = None) -> str:
        """Put a new tenant on a cell, by default on that with the most room; return its name.

        Raises `Conflict` if the tenant is on another cell than `on`.
        """
        if await self._resolver.partition(tenant) is None:
            try:
                await self._resolver.add_partition(tenant, on=on or await self._roomiest())
            except Conflict:
                if on is not None:
                    raise  # else another process has placed it at the same time
        await self._resolver.pin(tenant, tenant)
        cell = (await self._resolver.resolve(tenant)).resource.name
        if on not in (None, cell):
            raise Conflict(f"tenant {tenant!r} is on cell {cell!r}; move it to {on!r}")
        return cell

    async def move(
        self, tenant: str, *, to: str, copy: Callable[[str, A, A], Awaitable[None]]
    ) -> None:
        """Move a tenant: uses of the old and the new cell never overlap.

        New uses wait, those that run end, then `copy(tenant, source, target)` copies the tenant's
        rows from one app to the other. It may run again after a crash, and must tolerate rows that
        are there. If it raises, the tenant stays where it was.
        """

        async def run(_: str, source: str, target: str) -> None:
            await copy(tenant, await self._cell(source), await self._cell(target))

        if await self.cell_of(tenant) is None:
            raise NotFound(f"tenant {tenant!r} is on no cell of {self.name!r}; place it first")
        await self._resolver.move(partition=tenant, to=to, copy=run)

    async def drain(
        self, cell: str, *, copy: Callable[[str, A, A], Awaitable[None]] | None = None
    ) -> int:
        """Place no new tenants on a cell, and with `copy` move away those that are there.

        Returns how many are left. Raises `Conflict` if no other cell takes tenants.
        """
        await self._resolver.drain(cell)
        if copy is not None:
            async for tenant in self._resolver.partitions(resource=cell):
                await self.move(tenant.name, to=await self._roomiest(), copy=copy)
        return (await self._resolver.view()).tallies[cell].partitions

    async def fill(self, cell: str) -> None:
        """Place new tenants on a cell again that was drained."""
        await self._resolver.drain(cell, draining=False)

    async def remove(self, cell: str) -> None:
        """Forget a cell without tenants; raises `InUse`. Its database stays as it is."""
        await self._resolver.remove(cell)

    async def close(self) -> None:
        """Disconnect from the cells; the app does so when it closes."""
        opened, self._apps = list(self._apps.values()), {}
        for app in await asyncio.gather(*opened, return_exceptions=True):
            if not isinstance(app, BaseException):
                await app.close()

    async def _roomiest(self) -> str:
        view = await self._resolver.view()
        room = [
            ((view.tallies[one.name].partitions + 1) / one.capacity, one.name)
            for one in view.resources if not one.draining
        ]  # fmt: skip
        if not room:
            raise Conflict(f"{self.name!r} has no cell that takes tenants; add one with add(…)")
        return min(room)[1]

    async def _cell(self, name: str) -> A:
        resource = _resource(await self._resolver.view(), name)
        if resource is None:
            raise NotFound(f"there is no cell {name!r} in {self.name!r}; add it with add(…)")
        return await self._open(resource)

    async def _open(self, resource: Resource) -> A:
        address = await self._address(resource)
        opening = self._apps.get(address)
        if opening is None or (opening.done() and opening.exception() is not None):
            loop = asyncio.get_running_loop()
            opening = self._apps[address] = loop.create_task(self._connected(address))
        return await asyncio.shield(opening)

    async def _connected(self, address: str) -> A:
        settings = msgspec.structs.replace(self._app.settings, database_url=address)
        made = type(self._app)(settings=settings)
        await made.connect()
        return made

    async def _address(self, resource: Resource) -> str:
        data: Any = resource.data
        key = await self._app.vault.key()
        try:
            sealed = base64.b64decode(data["sealed_url"])
            return key.open(sealed, self._owner(resource.name)).decode()
        except (KeyError, TypeError, ValueError) as error:
            raise SettingsError(
                f"the address of cell {resource.name!r} cannot be read: {error}. All processes"
                " need the same secret_key; or add the cell again"
            ) from error

    def _owner(self, cell: str) -> str:
        return f"cell {self.name}/{cell}"


def _resource(view: ResolverView, name: str) -> Resource | None:
    return next((one for one in view.resources if one.name == name), None)


class _CellsPart(Part[Cells[Any]]):
    """Lets cells close with their app."""

    async def close(self) -> None:
        await self.service.close()
