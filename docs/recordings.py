"""Records what commands show on a terminal, as pictures for the README.

    python docs/recordings.py    records anew; takes a few seconds

A scene runs real commands on a pseudo-terminal, in a folder of its own. What differs from run to
run (ids, times, paths) is replaced, so that a picture changes only if the output does.
"""

from __future__ import annotations

import html
import io
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "docs" / "pictures"
COLUMNS: Final = 92
WAIT_SECONDS_MAX: Final = 60.0
SHOP: Final = """
import asyncio

import relevo

app = relevo.App()


@app.job("report")
async def report(ctx: relevo.JobContext, month: str) -> None:
    await ctx.checkpoint(progress=0.4)
    await asyncio.sleep(3600)
"""
_THEME: Final = TerminalTheme(
    (24, 27, 33), (214, 218, 226),
    [(24, 27, 33), (224, 108, 117), (152, 195, 121), (229, 192, 123), (97, 175, 239),
     (198, 120, 221), (86, 182, 194), (171, 178, 191)],
)  # fmt: skip
_FORMAT: Final = """<svg viewBox="0 0 {terminal_width} {terminal_height}" \
xmlns="http://www.w3.org/2000/svg" role="img">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; \
font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}"\
/></clipPath>
{lines}
</defs>
<rect width="{terminal_width}" height="{terminal_height}" rx="8" fill="#181b21"/>
<g transform="translate(9, 9)"><g class="{unique_id}-matrix">
{matrix}
</g></g>
</svg>
"""
_ID: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_VARYING: Final = (
    (re.compile(r"using [^\r\n]+"), "using embedded PostgreSQL in ~/shop/.relevo"),
    (re.compile(r"\d\d:\d\d:\d\d"), "09:30:00"),
    (re.compile(r"\d+ s(?=\b)"), "2 s"),
    (re.compile(r"(?:for|since) (?:less than a second|\d+ seconds?)"), "for 2 seconds"),
)  # fmt: skip


class Session:
    """Commands of a scene, and what the terminal shows."""

    def __init__(
        self, folder: Path, environment: Mapping[str, str], files: tuple[int, ...]
    ) -> None:
        self.folder = folder
        self.shown = ""
        self._environment = {
            **environment, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": "40",
            "RELEVO_DRAIN_SECONDS": "0.1",
        }  # fmt: skip
        self._files = files
        self._behind: list[subprocess.Popen[bytes]] = []

    def run(self, command: str, *, kill_after: str | None = None) -> str:
        """Run a command and return its output; kill it once it has shown a text, if given."""
        self.shown += f"\x1b[1;32m$\x1b[0m {command}\r\n"
        ours, theirs = pty.openpty()
        process = self._start(command, theirs)
        os.close(theirs)
        output = ""
        while data := _read(ours):
            output += data.decode(errors="replace")
            if kill_after is not None and kill_after in output:
                os.killpg(process.pid, signal.SIGKILL)
        os.close(ours)
        process.wait()
        self.shown += output
        if kill_after is not None:
            self.shown += "\x1b[31mKilled\x1b[0m\r\n"
        return output

    def begin(self, command: str) -> None:
        """Run a command that is not shown, until the end of the scene."""
        with (self.folder / "behind.log").open("wb") as log:
            self._behind.append(self._start(command, log.fileno()))

    def until(self, command: str, text: str) -> None:
        """Wait until a command that is not shown says something."""
        end, said = time.monotonic() + WAIT_SECONDS_MAX, ""
        while text not in said:
            assert time.monotonic() < end, f"{command} never said {text}, but {said}"
            ours, theirs = pty.openpty()
            process = self._start(command, theirs)
            os.close(theirs)
            said = ""
            while data := _read(ours):
                said += data.decode(errors="replace")
            os.close(ours)
            process.wait()

    def close(self) -> None:
        """End what runs."""
        for process in self._behind:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()

    def _start(self, command: str, output: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["/bin/sh", "-c", f"exec {command}"], cwd=self.folder, env=self._environment,
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            pass_fds=self._files,
        )  # fmt: skip


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # nobody is at the other end any more
        return b""


def _survives_kill(session: Session) -> None:
    """The README's program; its first life stops at the fourth invoice, to be killed there."""
    readme = (ROOT / "README.md").read_text("utf-8")
    program = re.search(r"^```python file=invoices.py\n(.*?)^```", readme, re.M | re.S)
    assert program is not None
    pause = "0 if number < 4 or __import__('os').path.exists('killed') else 3600"
    text = program[1].replace("asyncio.sleep(0.3)", f"asyncio.sleep({pause})")
    assert pause in text
    (session.folder / "invoices.py").write_text(text)
    session.run("python invoices.py", kill_after="invoice 4")
    (session.folder / "killed").touch()
    session.run("python invoices.py")


def _explain(session: Session) -> None:
    """Why a job waits behind another one of its token."""
    _serve_shop(session)
    job = session.run("""relevo job submit report '{"month": "June"}' --token ana""").split()[-1]
    session.run(f"relevo job explain {job}")


def _watch(session: Session) -> None:
    """Lanes and running jobs."""
    _serve_shop(session)
    session.run("relevo job watch --once")


def _serve_shop(session: Session) -> None:
    """Run a host, and a report on it that has reached its checkpoint."""
    (session.folder / "shop.py").write_text(SHOP)
    session.begin("relevo run shop:app --name web-1 --plain")
    session.until("relevo host list", "web-1")
    session.run("""relevo job submit report '{"month": "May"}' --token ana""")
    session.until("relevo job watch --once", "40%")
    session.shown = ""


SCENES: Final[dict[str, Callable[[Session], None]]] = {
    "survives-kill.svg": _survives_kill, "explain.svg": _explain, "watch.svg": _watch,
}  # fmt: skip


def record(
    name: str, folder: Path, environment: Mapping[str, str], files: tuple[int, ...] = ()
) -> str:
    """Return the picture of a scene that is played in a folder."""
    session = Session(folder, environment, files)
    try:
        SCENES[name](session)
    finally:
        session.close()
    return picture(session.shown, name.removesuffix(".svg"))


def picture(shown: str, name: str) -> str:
    """Return what a terminal shows as SVG, without what differs from run to run."""
    for number, one in enumerate(dict.fromkeys(_ID.findall(shown)), 1):
        shown = shown.replace(one, f"01985b1e-5f0a-7c3e-8d52-3f1f6f0f2a{number:02x}")
    for pattern, text in _VARYING:
        shown = pattern.sub(text, shown)
    console = Console(
        record=True, file=io.StringIO(), width=COLUMNS, force_terminal=True,
        color_system="truecolor", legacy_windows=False,
    )  # fmt: skip
    for line in shown.replace("\r", "").rstrip("\n").split("\n"):
        console.print(Text.from_ansi(line.rstrip()), soft_wrap=False)
    return _fitted(console.export_svg(theme=_THEME, code_format=_FORMAT, unique_id=name))


def _fitted(svg: str) -> str:
    """Return a picture as high as its last line needs."""
    last = max(float(y) for y in re.findall(r'<text[^>]* y="([0-9.]+)"', svg))
    for place in ('<svg viewBox="0 0 [0-9.]+ ', '<rect width="[0-9.]+" height="'):
        svg = re.sub(f'({place})[0-9.]+"', rf'\g<1>{last + 26:.0f}"', svg)
    return svg


def words(svg: str) -> list[str]:
    """Return the words that a picture shows; widths of columns follow values that vary."""
    shown = "".join(re.findall(r"<text[^>]*>(.*?)</text>", svg)).replace("─", " ")
    return html.unescape(shown).split()


def main() -> None:
    """Record every scene on an embedded database."""
    clean = {name: value for name, value in os.environ.items() if "RELEVO_" not in name}
    clean["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{clean['PATH']}"
    FOLDER.mkdir(exist_ok=True)
    for name in SCENES:
        with tempfile.TemporaryDirectory(prefix="relevo-scene-") as folder:
            Path(folder).chmod(0o755)
            (FOLDER / name).write_text(record(name, Path(folder), clean), "utf-8")


if __name__ == "__main__":
    main()
