"""Sends to entities and looks at events, for tests without the service."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from relevo.kernel.postgres import catalog
from relevo.messaging.core.acceptance import Outgoing, accepted
from relevo.messaging.core.content import check_message

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database
    from relevo.messaging import Message
    from relevo.messaging.definitions import Definitions

SQL = catalog.load("relevo.messaging")


async def send(
    database: Database, definitions: Definitions, path: str, *messages: Message
) -> list[int]:
    definitions.forget(path)
    definition = await definitions.of(path)
    calls = [
        (definition, Outgoing(one, check_message(one), one.message_id or f"m{n}"))
        for n, one in enumerate(messages)
    ]
    [row] = await database.write(SQL.accept, *accepted(calls).columns())
    assert (row["outcome"], row["doubles"] or []) == ("sent", [])
    return list(row["sequences"])


async def events(database: Database) -> list[tuple[str, str, int, Any]]:
    rows = await database.fetch(
        "select type, subject, version, data from relevo.event order by lsn"
    )
    return [(row["type"], row["subject"], row["version"], json.loads(row["data"])) for row in rows]
