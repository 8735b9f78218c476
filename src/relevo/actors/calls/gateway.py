"""Calls of methods whose interface the caller does not know: JSON in and out."""

from __future__ import annotations

from typing import Any

import msgspec

from relevo.actors.markers import MethodOptions
from relevo.errors import ActorError, MethodRaised


class NamedMethod:
    """A method by its name; the owner of the actor decodes the arguments."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.digest = ""
        self.options = MethodOptions()
        self.is_json = True

    def decode_result(self, body: bytes) -> Any:
        """Return the result as plain values."""
        try:
            return msgspec.json.decode(body)
        except msgspec.MsgspecError as error:
            raise ActorError(f"{self.name} ran, and its result is not JSON: {error}") from error

    def decode_error(self, name: str, _: bytes, message: str) -> Exception:
        """Return a declared error."""
        return MethodRaised(f"{name}: {message}" if message else name)
