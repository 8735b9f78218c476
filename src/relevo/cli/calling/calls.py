"""Calls operations: in this process on the database, or over HTTP on a host.

Both take the same values and return the same bytes, so commands do not depend on the way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import click
import msgspec
from msgspec import Struct

from relevo.cli.generic.values import worded
from relevo.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager

    from relevo.cli.session import Session
    from relevo.kernel.operation import Operation

ABOUT_ONE_HOST: Final = frozenset(
    {"system.livez", "system.readyz", "system.health", "system.metrics"}
)
"""Operations that only a running host can answer; they always go over HTTP."""
CREATING: Final = frozenset(
    {
        "batch", "bulk", "create", "define", "patch", "put", "send", "send_batch", "set", "submit",
        "upsert",
    }
)  # fmt: skip
"""Verbs of operations that may create the embedded database; all others need one that exists."""


class OperationReply(Struct, frozen=True):
    """The answer of an operation; `body` is JSON unless the operation returns text."""

    status: int
    body: bytes


class Calls(Protocol):
    """Calls operations."""

    async def call(
        self, operation: Operation, values: Mapping[str, Any], reason: str | None = None
    ) -> OperationReply:
        """Call an operation with values under their API names; raises `RelevoError`.

        The reason is for the audit.
        """


def way_to(
    operation: Operation, session: Session, *, agent: bool = False
) -> AbstractAsyncContextManager[Calls]:
    """Return the calls that the options select: in this process, or over HTTP.

    Those of an `agent` are written into the audit.
    """
    url = session.url
    if url is None and operation.name in ABOUT_ONE_HOST:
        url = _own_url(session)
    if url is not None:
        from relevo.cli.calling.remote_calls import over_http  # each way imports what only it needs

        session.say_where(url)
        return over_http(url, session.key(), session.authorities, agent=agent)
    for name in ("key", "ca"):
        if session.given.get(name):
            raise click.UsageError(f"--{name} is for a host; give its --url, or set RELEVO_URL")
    from relevo.cli.calling.local_calls import in_process

    verb = operation.name.rpartition(".")[2]
    settings = session.database_settings(creates=verb in CREATING)
    # A command must not migrate a shared database as a side effect.
    migrate = settings.migrate and settings.database_url is None
    return in_process(msgspec.structs.replace(settings, migrate=migrate), agent=agent)


def _own_url(session: Session) -> str:
    """Return the URL of the host on this machine, by its settings."""
    from relevo.http.server import Address

    for name in ("database", "schema", "home"):
        if session.given.get(name):
            raise click.UsageError(f"--{name} selects no host; give the --url of one instead")
    settings = session.settings()
    return Address(settings.host, settings.port, "https" if settings.tls_cert else "http").url


def command_of(operation: Operation, values: Mapping[str, Any]) -> Any:
    """Return the operation's command; raises `InvalidValue` with the field."""
    from relevo.http.request import takes_raw
    from relevo.kernel.decoding import converted

    given = dict(values)
    if operation.body in given and takes_raw(operation):
        given[operation.body] = content_bytes(given[operation.body])
    try:
        return converted(given, operation.request)
    except InvalidValue as error:
        raise type(error)(worded(error.message, error.pointer), pointer=error.pointer) from None


def content_bytes(content: Any) -> bytes:
    """Return the bytes of a body; values from the command line are already decoded JSON."""
    return content if isinstance(content, bytes) else msgspec.json.encode(content)
