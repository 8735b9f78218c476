"""A host is killed between the effect of a request and its answer."""

from __future__ import annotations

import signal
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from relevo.testing.faults import FaultBoard
from tests.e2e.conftest import PRESET

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Cli, Host


def submit(host: Host) -> tuple[int, Any]:
    request = urllib.request.Request(
        f"{host.url}/v1/jobs",
        data=b'{"handler": "mail", "data": {}}',
        headers={
            "Authorization": f"Bearer {PRESET}",
            "Content-Type": "application/json",
            "Idempotency-Key": "order-17",
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, msgspec.json.decode(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, msgspec.json.decode(error.read())


def test_a_request_is_done_once_though_its_host_is_killed_before_the_answer(
    cli: Cli, tmp_path: Path
) -> None:
    board = FaultBoard(tmp_path / "faults")
    board.arm("before_answer_kept", "kill")
    faults = {key.removeprefix("RELEVO_").lower(): value for key, value in board.env().items()}
    host = cli.up(access_key=PRESET, **faults)
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        submit(host)
    assert host.end().code == -signal.SIGKILL
    host = cli.up(access_key=PRESET)
    status, problem = submit(host)
    assert (status, problem["code"]) == (409, "idempotency_key_in_use")
    status, counted = host.ask("/v1/jobs/count", {"Authorization": f"Bearer {PRESET}"})
    assert (status, counted["jobs"]) == (200, 1)
