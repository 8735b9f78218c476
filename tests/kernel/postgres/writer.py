"""A process that writes in groups and says what became of each row, until it is killed or told.

It prints `ok <id>`, `not <id>` (known not to have happened) or `unknown <id>` for each call that
ended, in one write each, so that what it said before a SIGKILL is whole. A row is called
`<run>:<caller>:<number>`, and a caller makes its next call when the last one has ended: what was
asked for can be told from what was said.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from typing import TYPE_CHECKING

from relevo import settings
from relevo.errors import OutcomeUnknown, Unavailable
from relevo.kernel.postgres.database import Database
from relevo.kernel.postgres.grouping import Group

if TYPE_CHECKING:
    from collections.abc import Sequence

CALLERS = 40
TABLE = "create table row_written (id text)"
INSERT = "insert into row_written (id) select unnest($1::text[])"


def say(word: str, row: str) -> None:
    os.write(1, f"{word} {row}\n".encode())


async def main(run: str) -> None:
    async with await Database.open(settings.load()) as database:

        async def statement(rows: Sequence[str]) -> list[None]:
            await database.write(INSERT, list(rows))
            return [None] * len(rows)

        group: Group[str, None] = Group("rows", statement, calls_max=25)
        told = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))

        async def caller(name: int) -> None:
            for number in itertools.count():
                row = f"{run}:{name}:{number}"
                try:
                    await group.call(row)
                    say("ok", row)
                except Unavailable:
                    say("not", row)
                except OutcomeUnknown:
                    say("unknown", row)
                if told.done():
                    return

        await asyncio.gather(*map(caller, range(CALLERS)))
        await group.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
