"""The properties of a webhook as users give them, checked."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final, TypedDict, get_args

from msgspec import Struct

from relevo import limits
from relevo.errors import InvalidExpression, InvalidValue, OutboundRefused
from relevo.router.wire.envelopes import NAMES
from relevo.webhooks.core import filters, retry
from relevo.webhooks.core.envelopes import EventFormat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.kernel.events import Catalogue
    from relevo.kernel.outbound.addresses import Allowed

NAME: Final = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?")
_PATTERN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.]*\*?|\*")
_OUR_PREFIXES: Final = ("relevo.", "Microsoft.Communication.")


class WebhookChange(TypedDict, total=False):
    """Properties that can be changed later."""

    url: str
    types: Sequence[str]
    filter: str | None
    format: EventFormat
    retry: Sequence[float]


class WebhookDefinition(Struct, frozen=True, kw_only=True):
    """What a webhook sends, and where."""

    url: str
    types: tuple[str, ...]
    filter: str | None
    format: EventFormat
    retry: tuple[float, ...]


def checked_name(name: str) -> str:
    """Return the name of a webhook; raises `InvalidValue`."""
    if not NAME.fullmatch(name):
        raise InvalidValue(
            f"a webhook is named by 1 to {limits.WEBHOOK_NAME_LENGTH_MAX} small letters, digits,"
            f" '.', '_' or '-', not {name[:100]!r}",
            pointer="/name",
        )
    return name


def checked(given: WebhookDefinition, allowed: Allowed, catalogue: Catalogue) -> None:
    """Refuse what could never be delivered, with the reason."""
    from relevo.kernel.outbound import client  # here: it takes long to import

    try:
        client.checked(given.url, allowed, secret=True)
    except OutboundRefused as error:
        raise InvalidValue(error.message, pointer="/url") from None
    if not 1 <= len(given.types) <= limits.WEBHOOK_TYPES_MAX:
        raise InvalidValue(
            f"types has 1 to {limits.WEBHOOK_TYPES_MAX} entries, not {len(given.types)};"
            " `*` means all",
            pointer="/types",
        )
    for pattern in given.types:
        _check_type(pattern, catalogue)
    if given.filter is not None:
        try:
            filters.compiled(given.filter)
        except InvalidExpression as error:
            raise InvalidExpression(error.message, pointer="/filter") from None
    if given.format not in get_args(EventFormat):
        raise InvalidValue(
            f"format is cloudevents or eventgrid, not {given.format!r}", pointer="/format"
        )
    retry.check_waits(given.retry)


def _check_type(pattern: str, catalogue: Catalogue) -> None:
    if len(pattern) > limits.NAME_LENGTH_MAX or not _PATTERN.fullmatch(pattern):
        raise InvalidValue(
            "a type is written like relevo.job.completed, or relevo.job.* for several, not"
            f" {pattern[:100]!r}",
            pointer="/types",
        )
    known = [one.name for one in catalogue if one.name not in filters.INTERNAL]
    if any(filters.matches(pattern, name) for name in known):
        return
    if pattern.startswith(_OUR_PREFIXES):
        close = difflib.get_close_matches(pattern, [*known, *NAMES.values()], n=1)
        hint = f"did you mean {close[0]}?" if close else "the reference of events lists all"
        raise InvalidValue(f"there is no event type {pattern!r}; {hint}", pointer="/types")
