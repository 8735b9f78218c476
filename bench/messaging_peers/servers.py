"""Starts brokers for a measurement, each with its own folder and ports, and stops them."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.jobs_peers import Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

START_SECONDS_MAX: Final = 90.0
PLACES: Final = ("/usr/lib/rabbitmq/bin", "/usr/sbin")


@asynccontextmanager
async def rabbitmq(folder: Path) -> AsyncIterator[str]:
    """Run RabbitMQ; yields its URL. Raises `Unavailable` if it is not installed."""
    program = _program("rabbitmq-server")
    port, between, names = _free_port(), _free_port(), _free_port()
    environment = {
        "HOME": str(folder), "RABBITMQ_NODENAME": "bench@localhost",
        "RABBITMQ_MNESIA_BASE": str(folder / "data"), "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_PID_FILE": str(folder / "pid"), "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(between), "ERL_EPMD_PORT": str(names),
        "ERL_EPMD_RELAXED_COMMAND_CHECK": "1",
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
    }  # fmt: skip
    try:
        async with _running([program], environment, port):
            yield f"amqp://guest:guest@127.0.0.1:{port}/"
    finally:
        with suppress(OSError):  # the register of names, which outlives the broker
            ending = await asyncio.create_subprocess_exec(
                "epmd", "-port", str(names), "-kill", stdout=asyncio.subprocess.DEVNULL
            )
            await ending.wait()


@asynccontextmanager
async def redis(folder: Path, appendfsync: str) -> AsyncIterator[str]:
    """Run Redis; yields its URL. Raises `Unavailable` if it is not installed."""
    port = _free_port()
    command = [
        _program("redis-server"), "--port", str(port), "--dir", str(folder), "--save", "",
        "--appendonly", "yes", "--appendfsync", appendfsync, "--bind", "127.0.0.1",
    ]  # fmt: skip
    async with _running(command, {}, port):
        yield f"redis://127.0.0.1:{port}/0"


def _program(name: str) -> str:
    path = os.pathsep.join((*PLACES, os.environ.get("PATH", "")))
    found = shutil.which(name, path=path)
    if found is None:
        raise Unavailable(f"{name} is not installed; on Debian: apt-get install {name}")
    return found


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


@asynccontextmanager
async def _running(
    command: list[str], environment: Mapping[str, str], port: int
) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, **environment}, stdout=asyncio.subprocess.DEVNULL,
        stderr=sys.stderr,
    )  # fmt: skip
    try:
        async with asyncio.timeout(START_SECONDS_MAX):
            while not await _answers(port):
                if process.returncode is not None:
                    raise Unavailable(f"{Path(command[0]).name} ended with {process.returncode}")
                await asyncio.sleep(0.1)
        yield
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _answers(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
