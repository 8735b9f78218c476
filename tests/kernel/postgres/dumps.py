"""Dumps by the programs of the wheel, and loading them into the server under test."""

from __future__ import annotations

import asyncio

from relevo.kernel.postgres.embedded.account import binaries

NEWER = b"SET transaction_timeout = 0;"
"""Written by the dumps of 17 and later, and unknown to servers before."""


async def program(name: str, *arguments: str, given: bytes = b"") -> bytes:
    """Run a program of PostgreSQL, and return what it writes."""
    pipe = asyncio.subprocess.PIPE
    running = await asyncio.create_subprocess_exec(
        binaries() / name, *arguments, stdin=pipe, stdout=pipe
    )
    written, _ = await running.communicate(given)
    assert running.returncode == 0
    return written


async def load(script: bytes, url: str) -> None:
    """Run a dump's script in a database; every statement has to succeed."""
    text = script.replace(NEWER, b"")
    await program("psql", "-qX", "-v", "ON_ERROR_STOP=1", url, given=text)
