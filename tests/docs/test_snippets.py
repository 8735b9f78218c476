"""Everything the documentation shows is run; every link leads somewhere; what is made is current.

A page is a story: its snippets run in order, in one shell, in a folder of their own, as a reader
would run them. What a snippet is follows from the words after its three backticks:

    python                  a program; it runs to its end
    python file=worker.py   a file in the folder; one named test_… is run by pytest, another must be
                            used on the page (conftest.py is, by pytest)
    sh runnable             commands
    sh shown                commands that are only shown: they need what a test has not
    sh runnable terminal    one command that goes on running while the reader works elsewhere
    sql runnable            statements for the page's database, as psql or a driver would send them
    sql shown               statements that are only shown
    yaml, ini, toml, json   files: their syntax is checked; yaml may have several documents
    python from=PATH        an excerpt of a file that other tests run, word for word
    text output             what the snippet before it has written to standard output

A comment `<!-- until: command -->` waits until the command succeeds: a reader would look again.
Programs and the `relevo` of a page are processes of their own, forked from one that has imported
Relevo (`tests/support/forked_command.py`). Pages use a fresh database through RELEVO_DATABASE_URL;
one with `<!-- embedded -->` uses the embedded server in its folder, as without configuration.
`make soak` runs every page so that does not name a database, as a reader pastes it.
Port 8080 stands for a free one.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable  # noqa: TC003 - of PARSERS
from configparser import ConfigParser
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import yaml
from msgspec import Struct

from tests.support import forked_command, forks

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LANGUAGES: Final = {"ini", "json", "mermaid", "python", "sh", "sql", "text", "toml", "yaml"}
TOOLS: Final = ("bash", "curl", "openssl")
"""Programs that pages may use beside Relevo's own; without one, what needs it is skipped."""
EMBEDDED: Final = "<!-- embedded -->"
PAGE_SECONDS_MAX: Final = 150
PARSERS: Final[dict[str, Callable[[str], object]]] = {
    "ini": lambda text: ConfigParser(strict=False, interpolation=None).read_string(text),
    "json": json.loads,
    "toml": tomllib.loads,
    "yaml": lambda text: list(yaml.safe_load_all(text)),
}
WAIT_SECONDS_MAX: Final = 60

_FENCE: Final = re.compile(r"^```(.*)$")
_UNTIL: Final = re.compile(r"^<!-- until: (.+) -->$")
_LINK: Final = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_PREAMBLE: Final = """\
set -euo pipefail
trap 'echo "$step failed" >&2' ERR
trap 'code=$?; trap "" TERM; kill -TERM 0; wait; exit $code' EXIT
wait_until() {
  local end=$((SECONDS + %d))
  # Who is cut off by `grep -q` has not failed.
  until (set +o pipefail; trap - ERR EXIT; eval "$1") > waiting.log 2>&1; do
    if ((SECONDS > end)); then
      cat waiting.log terminal-*.log >&2; echo "never: $1" >&2; return 1
    fi
    sleep 0.1
  done
}
"""

_RUN_SQL: Final = """\
import asyncio, asyncpg, relevo
async def main():
    async with relevo.App() as app:
        connection = await asyncpg.connect(app.database_url)
        await connection.execute(r'''%s''')
        await connection.close()
asyncio.run(main())
"""


class Snippet(Struct, frozen=True):
    """A fenced block, or a comment that says what to wait for."""

    line: int
    language: str
    marks: tuple[str, ...]
    text: str

    @property
    def file(self) -> str | None:
        """The name it is to be saved under."""
        named = [mark.removeprefix("file=") for mark in self.marks if mark.startswith("file=")]
        return named[0] if named else None

    @property
    def excerpt_of(self) -> str | None:
        """The file in the repository that contains it."""
        named = [mark.removeprefix("from=") for mark in self.marks if mark.startswith("from=")]
        return named[0] if named else None


def read(page: Path) -> list[Snippet]:
    found: list[Snippet] = []
    opened: tuple[int, list[str]] | None = None
    body: list[str] = []
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        fence, until = _FENCE.match(line), _UNTIL.match(line)
        if opened is not None and line == "```":
            start, words = opened
            found.append(Snippet(start, words[0], tuple(words[1:]), "\n".join(body) + "\n"))
            opened = None
        elif opened is not None:
            body.append(line)
        elif fence:
            opened, body = (number, fence[1].split() or ["text"]), []
        elif until:
            found.append(Snippet(number, "until", (), until[1]))
    assert opened is None, f"{page.name}: a snippet is not closed"
    return found


def commands(snippet: Snippet) -> str | None:
    """What the shell runs for a snippet; None if nothing."""
    text = snippet.text
    match snippet.language:
        case "until":
            return f"wait_until {shlex.quote(text)}"
        case "python" if snippet.excerpt_of is not None:
            return None
        case "python" if snippet.file is None:
            return f"python - <<'END OF SNIPPET'\n{text}END OF SNIPPET\n"
        case "python" if str(snippet.file).startswith("test_"):
            return f"python -m pytest -q -p no:cacheprovider {snippet.file}"
        case "sql" if "runnable" in snippet.marks:
            return f"python - <<'END OF SNIPPET'\n{_RUN_SQL % text}END OF SNIPPET\n"
        case "sh" if "terminal" in snippet.marks:
            return f"exec {text.strip()} > terminal-{snippet.line}.log 2>&1 &"
        case "sh" if "runnable" in snippet.marks:
            return text
        case _:
            return None


def script(page: Path, snippets: list[Snippet]) -> str:
    parts = [_PREAMBLE % WAIT_SECONDS_MAX]
    for snippet in snippets:
        text = commands(snippet)
        if text is not None:
            parts.append(f"step={shlex.quote(f'{page.name}:{snippet.line}')}")
            shown = "terminal" in snippet.marks or snippet.language == "until"
            parts.append(text if shown else f"{{\n{text}\n}} > output-{snippet.line}.log")
    return "\n".join(parts) + "\n"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the account of an embedded server started by root can enter."""
    with tempfile.TemporaryDirectory(prefix="relevo-docs-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the commands `relevo` and `python`."""
    folder = tmp_path_factory.mktemp("programs")
    forked_command.install(str(folder))
    return folder


def environment(page: Path, url: str | None, port: str, programs: Path) -> dict[str, str]:
    """Return the variables of a page; without a URL it uses the embedded database."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RELEVO_") or "_TEST" in k}
    paths = [str(programs), str(Path(sys.executable).parent), kept["PATH"]]
    kept["PATH"] = os.pathsep.join(paths)
    kept[forked_command.SOCKET] = str(forks.requests().fileno())
    kept["RELEVO_PORT"] = port
    if url is not None and EMBEDDED not in page.read_text("utf-8"):
        kept["RELEVO_DATABASE_URL"] = url
    return kept


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def run(text: str, folder: Path, env: dict[str, str]) -> tuple[int, str]:
    """Run a script, which ends its terminals itself; return its code and what it said."""
    with (folder / "script.log").open("wb") as log:
        shell = subprocess.Popen(
            ["bash", "-c", text], cwd=folder, env=env, stdin=subprocess.DEVNULL,
            stdout=log, stderr=log, start_new_session=True,
            pass_fds=[forks.requests().fileno()],
        )  # fmt: skip
    try:
        code = shell.wait(PAGE_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        os.killpg(shell.pid, signal.SIGKILL)
        code = shell.wait()
    logs = [folder / "script.log", *sorted(folder.glob("output-*.log"))]
    return code, "\n".join(f"{log.name}:\n{log.read_text('utf-8')}" for log in logs)


def outputs(snippets: list[Snippet]) -> Iterator[tuple[Snippet, Snippet]]:
    for before, shown in pairwise(snippets):
        if shown.language == "text" and "output" in shown.marks:
            yield before, shown


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def lacking(text: str) -> list[str]:
    """Return the tools that a script uses, or is run by, and this machine does not have."""
    used = [tool for tool in TOOLS if tool == "bash" or re.search(rf"\b{tool}\b", text)]
    return [tool for tool in used if shutil.which(tool) is None]


def is_a_story(page: Path) -> bool:
    return any(commands(snippet) for snippet in read(page))


def needs_no_database(page: Path) -> bool:
    """Whether its snippets take the database that there is; those marked embedded do so anyway."""
    text = "".join(commands(snippet) or "" for snippet in read(page))
    return bool(text) and "DATABASE_URL" not in text and EMBEDDED not in page.read_text("utf-8")


@pytest.mark.parametrize("page", [page for page in PAGES if is_a_story(page)], ids=name)
def test_the_snippets_of_a_page_run_in_order(
    page: Path, folder: Path, relevo_url: str, programs: Path
) -> None:
    play(page, folder, relevo_url, programs)


@pytest.mark.soak
@pytest.mark.parametrize("page", [page for page in PAGES if needs_no_database(page)], ids=name)
def test_the_snippets_of_a_page_run_as_pasted_on_the_embedded_database(
    page: Path, folder: Path, programs: Path
) -> None:
    play(page, folder, None, programs)


def play(page: Path, folder: Path, url: str | None, programs: Path) -> None:
    """Run the snippets of a page, and compare what they say."""
    port = str(free_port())
    snippets = [
        Snippet(each.line, each.language, each.marks, each.text.replace("8080", port))
        for each in read(page)
    ]
    if missing := lacking(script(page, snippets)):
        pytest.skip(f"{name(page)} needs {', '.join(missing)}, which is not installed here")
    for snippet in snippets:
        if snippet.file is not None:
            (folder / snippet.file).write_text(snippet.text, "utf-8")
    code, said = run(script(page, snippets), folder, environment(page, url, port, programs))
    assert code == 0, f"{name(page)} ended with {code}\n{said}"
    for before, shown in outputs(snippets):
        written = (folder / f"output-{before.line}.log").read_text("utf-8")
        assert written.rstrip("\n") == shown.text.rstrip("\n"), said


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_snippet_is_of_a_known_kind_and_every_program_is_run(page: Path) -> None:
    snippets = read(page)
    shell = "".join(commands(s) or "" for s in snippets if s.language in ("sh", "until"))
    programs = "".join(s.text for s in snippets if s.language == "python")
    for snippet in snippets:
        where = f"{page.name}:{snippet.line}"
        if snippet.language in ("sh", "sql"):
            marks = {"runnable", "shown"} & set(snippet.marks)
            assert len(marks) == 1, f"{where}: say whether it is `runnable` or only `shown`"
        if snippet.language in PARSERS and "shown" not in snippet.marks:
            try:
                PARSERS[snippet.language](snippet.text)
            except Exception as error:
                raise AssertionError(f"{where} is no {snippet.language}: {error}") from error
        assert snippet.language in LANGUAGES | {"until"}, f"{where}: {snippet.language}"
        if snippet.excerpt_of is not None:
            assert snippet.text in (ROOT / snippet.excerpt_of).read_text("utf-8"), where
        elif snippet.language == "python" and commands(snippet) is None:
            module = Path(snippet.file or "").stem
            served = f" {module}:" in shell  # as in `relevo up module:app`
            used = served or f"{module}.py" in shell or re.search(rf"\b{module}\b", programs)
            assert used or module == "conftest", f"{where}: nothing on the page uses {module}.py"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for target in _LINK.findall(_prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{name(page)} links to {target}, which is not there"
        if anchor:
            assert anchor in _anchors(found), f"{name(page)}: no heading for {target}"


def _prose(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def _anchors(page: Path) -> set[str]:
    """The anchors of headings, as hosting sites make them."""
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(_prose(page)))
    return {text.replace(" ", "-") for text in plain}


def test_what_is_made_from_the_code_is_current() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "generate.py", "--check"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
