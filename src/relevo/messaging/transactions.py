"""What the database refuses in transactions of callers, as errors of Relevo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from relevo.errors import EntityDisabled, NotFound, RelevoError, TooLarge
from relevo.kernel.postgres import failures

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

REFUSALS: Final[Mapping[str, type[RelevoError]]] = {
    "RV012": NotFound, "RV013": EntityDisabled, "RV015": TooLarge,
}  # fmt: skip
"""By the state that `relevo.arrive_messages` and `relevo.count_message_operation` raise."""


def naming_refusals() -> AbstractContextManager[None]:
    """Raise what the database refuses by its name, whichever driver reports it."""
    return failures.naming_refusals(REFUSALS)
