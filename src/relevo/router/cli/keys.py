"""A worker's desk on a terminal: a list of offers and jobs, and a key for each thing to do."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
from contextlib import aclosing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from relevo.cli.output.printing import printable
from relevo.cli.output.render import new_console
from relevo.errors import RelevoError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relevo.router.cli.desk import TerminalDesk

LOOK_SECONDS: Final = 1.0
"""How often the desk looks for offers that are gone."""
KEYS: Final = "a accept · d decline · c complete · x close · u unassign · ↑ ↓ choose · q leave"
_UP: Final = (b"\x1b[A", b"k")
_DOWN: Final = (b"\x1b[B", b"j")
_OF_OFFERS: Final = {b"a": "accept", b"d": "decline"}
_OF_JOBS: Final = {b"c": "complete", b"x": "close", b"u": "unassign"}


class KeyRow(Struct, frozen=True, kw_only=True):
    """Something on the desk."""

    state: str
    """`offered`, `assigned` or `completed`."""
    job_id: str
    ref: str
    """The offer, or the assignment."""
    about: str = ""
    until: str = ""


class KeySurface:
    """The rows on the screen, and the selected one."""

    def __init__(self, desk: TerminalDesk) -> None:
        self._desk = desk
        self._about: dict[str, str] = {}
        self._completed: set[str] = set()
        self.rows: list[KeyRow] = []
        self.chosen = 0
        self.said = ""

    async def look(self) -> None:
        """Read the current offers and jobs."""
        try:
            offers, worker = await self._desk.open_offers(), await self._desk.worker()
        except RelevoError as error:
            self.said = error.message
            return
        for one in offers:
            labels = ", ".join(f"{key}={value}" for key, value in one["job_labels"].items())
            named = [one["queue_id"], one["channel_id"], one["channel_reference"], labels]
            self._about[one["job_id"]] = " · ".join(filter(None, named))
        self.rows = [self._offer(offer) for offer in offers]
        self.rows += [self._job(one) for one in worker["assignedJobs"]]
        self.chosen = max(0, min(self.chosen, len(self.rows) - 1))

    async def press(self, key: bytes) -> None:
        """Carry out a key press on the selected row."""
        if key in _UP or key in _DOWN:
            step = 1 if key in _DOWN else -1
            self.chosen = max(0, min(self.chosen + step, len(self.rows) - 1))
            return
        if not self.rows:
            return
        row = self.rows[self.chosen]
        verb = (_OF_OFFERS if row.state == "offered" else _OF_JOBS).get(key)
        if verb is None:
            return
        try:
            await self._do(verb, row)
            self.said = f"{row.job_id}: {verb}"
        except RelevoError as error:
            self.said = error.message
        await self.look()

    def drawn(self) -> Group:
        """Return the desk as a terminal shows it."""
        table = Table(title=f"Desk of {printable(self._desk.worker_id)}", title_justify="left")
        for name in ("", "job", "is", "about", "expires"):
            table.add_column(name, overflow="fold")
        for number, row in enumerate(self.rows):
            mark = ">" if number == self.chosen else ""
            cells = (mark, row.job_id, row.state, row.about, row.until)
            style = "bold" if number == self.chosen else ""
            table.add_row(*(Text(printable(cell)) for cell in cells), style=style)
        empty = Text("Nothing here; offers appear by themselves.", style="dim")
        body = table if self.rows else Group(table, empty)
        return Group(body, Text(printable(self.said)), Text(KEYS, style="dim"))

    async def _do(self, verb: str, row: KeyRow) -> None:
        match verb:
            case "accept":
                await self._desk.accept({"offer_id": row.ref})
            case "decline":
                await self._desk.decline({"offer_id": row.ref})
            case _:
                await self._desk.finish(verb, row.job_id, row.ref)
                if verb == "complete":
                    self._completed.add(row.ref)

    def _offer(self, one: dict[str, Any]) -> KeyRow:
        until = (one["expires_at"] or "")[11:19]
        about = self._about[one["job_id"]]
        return KeyRow(
            state="offered", job_id=one["job_id"], ref=one["offer_id"], about=about, until=until
        )

    def _job(self, one: dict[str, Any]) -> KeyRow:
        ref = one["assignmentId"]
        state = "completed" if ref in self._completed else "assigned"
        about = self._about.get(one["jobId"], "")
        return KeyRow(state=state, job_id=one["jobId"], ref=ref, about=about)


async def by_hand(desk: TerminalDesk, stop: asyncio.Event) -> None:
    """Show the screen and carry out key presses, until `q` or `stop`."""
    shown = KeySurface(desk)
    pressed: asyncio.Queue[bytes] = asyncio.Queue()
    with _keys(pressed), Live(console=new_console(), auto_refresh=False) as live:
        async with asyncio.TaskGroup() as group:
            group.create_task(_notice(desk, stop, pressed))
            while not stop.is_set():
                await shown.look()
                live.update(shown.drawn(), refresh=True)
                try:
                    key = await asyncio.wait_for(pressed.get(), LOOK_SECONDS)
                except TimeoutError:
                    continue
                if key == b"q":
                    stop.set()
                await shown.press(key)


async def _notice(desk: TerminalDesk, stop: asyncio.Event, pressed: asyncio.Queue[bytes]) -> None:
    """Have the desk look at once when an offer comes."""
    with suppress(RelevoError):  # the screen reads by itself, and shows errors
        async with aclosing(desk.offers(stop)) as offers:
            async for _ in offers:
                pressed.put_nowait(b"")


@contextmanager
def _keys(pressed: asyncio.Queue[bytes]) -> Iterator[None]:
    """Let keys arrive as they are pressed, without being echoed."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    loop = asyncio.get_running_loop()
    tty.setcbreak(terminal)
    loop.add_reader(terminal, lambda: _put(os.read(terminal, 64), pressed))
    try:
        yield
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _put(typed: bytes, pressed: asyncio.Queue[bytes]) -> None:
    """Pass on key presses one by one; the end of the terminal leaves the screen."""
    keys = [typed] if typed.startswith(b"\x1b") else [typed[n : n + 1] for n in range(len(typed))]
    for key in keys or [b"q"]:
        pressed.put_nowait(key)
