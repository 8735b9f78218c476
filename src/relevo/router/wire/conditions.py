"""Conditions of a request: what it is to be refused for if somebody else was faster. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from msgspec import Struct

from relevo.errors import ConditionNotMet, InvalidValue

_TAG: Final = re.compile(r'(?:W/)?"[^"]*"|[^\s,]+')


class Conditions(Struct, frozen=True, kw_only=True):
    """What has to hold of a resource as it is, before a change of it is even looked at."""

    if_match: str | None = None
    """Entity tags with their quotes, or `*` for whatever there is."""
    if_none_match: str | None = None
    """Entity tags with their quotes, or `*`: only if there is none."""
    if_unmodified_since: datetime | None = None

    def check(self, etag: str | None, modified_at: datetime | None) -> None:
        """Raise `ConditionNotMet` unless all hold; both are None for what does not exist."""
        wanted = _tags(self.if_match)
        if wanted is not None and (etag is None or not ({"*", etag} & wanted)):
            there = "there is nothing there" if etag is None else f"its tag is {etag}"
            raise ConditionNotMet(f"If-Match does not hold: {there}", pointer="If-Match")
        unwanted = _tags(self.if_none_match)
        if unwanted is not None and etag is not None and {"*", etag} & unwanted:
            raise ConditionNotMet(
                f"If-None-Match does not hold: it is there, and its tag is {etag}",
                pointer="If-None-Match",
            )
        since = self.if_unmodified_since
        # The header has whole seconds; what was sent as Last-Modified must fulfil it.
        changed = None if modified_at is None else modified_at.replace(microsecond=0)
        if since is not None and changed is not None and changed > since:
            raise ConditionNotMet(
                f"it was modified at {changed.isoformat()}, after {since.isoformat()}",
                pointer="If-Unmodified-Since",
            )


def http_date(text: str | None, header: str) -> datetime | None:
    """Return the time of a header such as `Wed, 15 Nov 2023 10:00:00 GMT`."""
    if text is None:
        return None
    try:
        found = parsedate_to_datetime(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        raise InvalidValue(
            f"{header} is not a date such as `Wed, 15 Nov 2023 10:00:00 GMT`", pointer=header
        ) from None


def _tags(header: str | None) -> set[str] | None:
    return None if header is None else set(_TAG.findall(header))
