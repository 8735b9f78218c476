"""Continuation tokens: where a reader is, in a form that travels. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib

import msgspec
from msgspec import Struct

from relevo.errors import BadContinuation
from relevo.feed.model import Mode
from relevo.store.ranges import Interval, RangeMap

_DIGEST_BYTES = 8


class TokenPlace(Struct, frozen=True, array_like=True):
    """A position in the log of one range, for one interval of it."""

    range_id: int
    low: str
    high: str
    lsn: int

    @property
    def interval(self) -> Interval:
        """The part of the range that is read."""
        return Interval(self.low, self.high)


class Token(Struct, frozen=True, kw_only=True, rename="lower", omit_defaults=True):
    """Everything a reader needs to go on."""

    version: int = 1
    incarnation: str
    mode: Mode
    places: tuple[TokenPlace, ...]
    filter: str | None = None
    """Digest of the filter that was read with."""
    next: int = 0
    """Which place is read next: reads of a container visit its ranges in turn."""


def encode(token: Token) -> str:
    """Return the opaque text of a token."""
    body = msgspec.json.encode(token)
    return base64.urlsafe_b64encode(_digest(body, token.incarnation) + body).decode().rstrip("=")


def decode(text: str, *, incarnation: str, mode: Mode) -> Token:
    """Return the token of a text; refuse a damaged one, or one of another feed."""
    token = opened(text)
    if token.incarnation != incarnation:
        raise BadContinuation(
            "the continuation token belongs to another container, or to an earlier one of that name"
        )
    if token.mode != mode:
        raise BadContinuation(f"the continuation token is for mode {token.mode!r}, not {mode!r}")
    return token


def opened(text: str) -> Token:
    """Return the token of a text, of any container; refuse a damaged one."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        token = msgspec.json.decode(raw[_DIGEST_BYTES:], type=Token)
    except (binascii.Error, ValueError, msgspec.DecodeError) as error:
        raise BadContinuation("the continuation token cannot be read; pass it unchanged") from error
    if _digest(raw[_DIGEST_BYTES:], token.incarnation) != raw[:_DIGEST_BYTES]:
        raise BadContinuation("the continuation token was changed; pass it as it was given")
    if token.version != 1:
        raise BadContinuation(f"continuation tokens of version {token.version} are not supported")
    if not token.places or not 0 <= token.next < len(token.places):
        raise BadContinuation("the continuation token names no place to read from")
    return token


def follow_splits(token: Token, ranges: RangeMap) -> Token:
    """Replace places in sealed ranges by their children, at the same position."""
    if all(place.range_id in ranges.by_id and ranges.by_id[place.range_id].open
           for place in token.places):  # fmt: skip
        return token
    places: list[TokenPlace] = []
    for place in token.places:
        known = ranges.by_id.get(place.range_id)
        if known is not None and known.open:
            places.append(place)
            continue
        for child in ranges.over(place.interval):
            part = child.interval.intersect(place.interval)
            places.append(TokenPlace(child.id, part.low, part.high, place.lsn))
    return msgspec.structs.replace(token, places=tuple(places), next=0)


def split(token: Token, parts: int) -> tuple[Token, ...]:
    """Cut a token into at least `parts` tokens that together go on where it was."""
    places = list(token.places)
    while len(places) < parts:
        widest = max(places, key=_width)
        places.remove(widest)
        places.extend(
            TokenPlace(widest.range_id, half.low, half.high, widest.lsn)
            for half in widest.interval.split(2)
        )
    places.sort(key=lambda place: place.low)
    return tuple(
        msgspec.structs.replace(token, places=tuple(places[i::parts]), next=0) for i in range(parts)
    )


def _width(place: TokenPlace) -> int:
    return int(place.high[:8].ljust(8, "0"), 16) - int(place.low[:8].ljust(8, "0") or "0", 16)


def _digest(body: bytes, incarnation: str) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES, key=incarnation.encode()[:64]).digest()
