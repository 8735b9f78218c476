"""Calls operations in this process, on the database."""

from __future__ import annotations

import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from relevo.app import App
from relevo.cli.calling.calls import OperationReply, command_of
from relevo.http.access.authenticator import LOCAL_ADMIN, call
from relevo.http.access.keys import Keys
from relevo.http.services import Services, open_services
from relevo.kernel.operation import encoded
from relevo.kernel.sealing import MasterKey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from relevo.audit.service import CallerKind
    from relevo.cli.calling.calls import Calls
    from relevo.kernel.operation import Operation
    from relevo.settings import Settings


@asynccontextmanager
async def in_process(settings: Settings, *, agent: bool = False) -> AsyncIterator[Calls]:
    """Connect as a client with all rights, which access to the database implies anyway."""
    async with App(settings=settings) as app:
        yield LocalCalls(app, "agent" if agent else None)


class LocalCalls:
    """Operations of an app in this process."""

    def __init__(self, app: App, caller: CallerKind | None = None) -> None:
        self._app = app
        self._caller: CallerKind | None = caller

    async def call(
        self, operation: Operation, values: Mapping[str, Any], reason: str | None = None
    ) -> OperationReply:
        """Run an operation as the local administrator."""
        command = command_of(operation, values)
        async with self._services(operation, values) as services:
            response = await call(
                operation, services, LOCAL_ADMIN, command, reason=reason, caller=self._caller
            )
        return OperationReply(operation.status_of(response), encoded(response))

    @asynccontextmanager
    async def _services(
        self, operation: Operation, values: Mapping[str, Any]
    ) -> AsyncIterator[Services]:
        if operation.name == "keys.create" and values.get("kind") == "signing":
            async with open_services(self._app) as services:
                yield services
            return
        # Nothing else needs the master key, so commands work without it: on an operator's machine,
        # or after the key was lost and others must be revoked.
        keys = Keys(self._app.database, MasterKey(secrets.token_bytes(32)))
        try:
            yield Services(self._app, keys)
        finally:
            await keys.close()
