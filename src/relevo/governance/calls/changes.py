"""What a change of a pool or a limit has done."""

from __future__ import annotations

from typing import Literal

PutOutcome = Literal["created", "changed", "same"]
