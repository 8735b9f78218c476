"""Access keys as operators see them; nothing here needs the database or another part."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from msgspec import Struct

KeyKind = Literal["bearer", "signing"]
KeyState = Literal["active", "expired", "revoked"]
MaxClassMode = Literal["downgrade", "reject"]
"""What becomes of a message whose class is higher than the key's highest."""


class KeyInfo(Struct, frozen=True, kw_only=True):
    """An access key, without its secret."""

    id: str
    name: str
    kind: KeyKind
    roles: tuple[str, ...]
    scopes: tuple[str, ...]
    state: KeyState
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    """Right within a minute."""
    revoked_at: datetime | None
    user_id: UUID
    """The user who owns rows that are created with the key."""
    max_class: str | None = None
    """The highest class that it sends messages with; None is any."""
    max_class_mode: MaxClassMode | None = None
    """What becomes of a message of a higher class."""


class NewKey(Struct, frozen=True, kw_only=True):
    """The properties of a new key."""

    name: str
    kind: KeyKind = "bearer"
    roles: tuple[str, ...]
    scopes: tuple[str, ...] = ()
    expires_at: datetime | None = None
    user_id: UUID | None = None
    """Whose key it is; None makes a new user."""
    max_class: str | None = None
    max_class_mode: MaxClassMode | None = None
    """What becomes of a message above `max_class`; without it, `downgrade`."""


class KeyCreated(Struct, frozen=True, kw_only=True):
    """A new key, and the only sight of its secret."""

    key: KeyInfo
    secret: str

    def __repr__(self) -> str:
        return f"KeyCreated(key={self.key!r}, secret=…)"

    def __rich_repr__(self) -> Any:
        yield "key", self.key
