"""The state of an actor in memory: one value, compared by its encoding.

A turn's changes are found by encoding the state when the turn ends, so changes deep inside nested
lists and dicts count. Undoing decodes the last encoding, which replaces the value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from relevo.errors import InvalidValue, StatePoisoned, StateTooNew, TooLarge
from relevo.limits import ACTOR_STATE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from relevo.actors.core.deltas import StoredActor
    from relevo.actors.interfaces import Interfaces

S = TypeVar("S")


class StateCodec(Generic[S]):
    """How the state of a type is stored, and how older forms become the present one."""

    def __init__(
        self,
        kind: type[S],
        *,
        schema: int,
        upgrades: Mapping[int, Callable[[Any], Any]],
        codecs: Interfaces,
    ) -> None:
        self.kind = kind
        self.schema = schema
        self._upgrades = upgrades
        self._encoder = codecs.encoder
        self._decoder: msgspec.msgpack.Decoder[S] = codecs.decoder(kind)

    def new(self) -> S:
        """Return the state of an actor that has none yet."""
        return self.kind()

    def encode(self, state: S) -> bytes:
        """Return the stored form; raises `TooLarge`, or `InvalidValue` for what has none."""
        try:
            encoded = self._encoder.encode(state)
        except (
            TypeError,
            ValueError,
            OverflowError,
            RecursionError,
            msgspec.MsgspecError,
        ) as error:
            raise InvalidValue(
                f"the state of an actor ({self.kind.__qualname__}) cannot be encoded: {error}"
            ) from error
        if len(encoded) > ACTOR_STATE_BYTES_MAX:
            raise TooLarge(
                f"the state of an actor has {len(encoded):,} bytes, and at most"
                f" {ACTOR_STATE_BYTES_MAX:,} may be stored; keep large data in self.map(…)"
            )
        return encoded

    def decode(self, encoded: bytes) -> S:
        """Return the state of an encoding made by this schema."""
        return self._decoder.decode(encoded)

    def read(self, stored: StoredActor) -> S:
        """Return the stored state, upgraded if it is of an older schema.

        Raises `StateTooNew`, or `StatePoisoned` for bytes that cannot be read.
        """
        if stored.document is None:
            return self.new()
        if stored.schema > self.schema:
            raise StateTooNew(
                f"the stored state has schema {stored.schema}, and this program knows schemas up to"
                f" {self.schema}; run the newer program"
            )
        try:
            if stored.schema == self.schema:
                return self.decode(stored.document)
            return self._upgraded(msgspec.msgpack.decode(stored.document), stored.schema)
        except Exception as error:
            raise StatePoisoned(
                f"the stored state of schema {stored.schema} cannot be read as"
                f" {self.kind.__qualname__}: {error}; it was not changed. An administrator can"
                " export, replace or reset it"
            ) from error

    def _upgraded(self, old: Any, schema: int) -> S:
        for step in range(schema + 1, self.schema + 1):
            upgrade = self._upgrades.get(step)
            if upgrade is not None:
                old = upgrade(old)
        return self.decode(self._encoder.encode(old))


class Document(Generic[S]):
    """The state of one activation: the value that turns change, and its last encoding."""

    def __init__(self, codec: StateCodec[S], stored: StoredActor) -> None:
        self._codec = codec
        self.value = codec.read(stored)
        self.encoded = codec.encode(self.value)
        """As of the last ended turn, or the last `save`."""
        self._view: tuple[bytes, S] | None = None

    def changed(self) -> bytes | None:
        """Return the encoding if it differs from the last one."""
        encoded = self._codec.encode(self.value)
        return None if encoded == self.encoded else encoded

    def keep(self, encoded: bytes) -> None:
        """Take an encoding for the last one."""
        self.encoded = encoded

    def mark(self) -> bytes:
        """Return what `restore` needs to undo later changes."""
        return self._codec.encode(self.value)

    def restore(self, mark: bytes | None = None) -> None:
        """Undo changes since a mark, or since the last ended turn."""
        if mark is not None:
            self.value = self._codec.decode(mark)
            return
        self.value = self._codec.decode(self.encoded)
        self.encoded = self._codec.encode(self.value)  # a set may have another order now

    def copy(self, mark: bytes) -> S:
        """Return a copy of the state at a mark."""
        return self._codec.decode(mark)

    def encoding(self, value: S) -> bytes:
        """Return the stored form of a state."""
        return self._codec.encode(value)

    def view(self) -> S:
        """Return a copy for readers: the state after the last ended turn."""
        if self._view is None or self._view[0] is not self.encoded:
            self._view = (self.encoded, self._codec.decode(self.encoded))
        return self._view[1]

    def check_view(self, view: S) -> bool:
        """Whether a view is as it was; one that was changed is dropped."""
        if self._view is None or self._view[1] is not view:
            return True
        if self._codec.encode(view) == self._view[0]:
            return True
        self._view = None
        return False
