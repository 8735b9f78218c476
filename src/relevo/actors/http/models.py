"""What requests about actors share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from relevo import limits
from relevo.actors.core.identity import ActorRef, checked_type, read_key

if TYPE_CHECKING:
    from collections.abc import Callable

SCOPE: Final = "actor:{type}"
ONE: Final = "/v1/actors/{type}/{key}"
TypeName = Annotated[str, Meta(max_length=64, description="The actor's type.")]
KeyText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=limits.ACTOR_KEY_BYTES_MAX + 2,
        description="The actor's key: text; `i:42` is a number, `u:` a UUID, `s:i:42` the text"
        " `i:42`.",
    ),
]


class ByType(Struct, frozen=True, kw_only=True):
    """Which type of actors."""

    type: TypeName


class ByActor(ByType, frozen=True, kw_only=True):
    """Which actor."""

    actor_key: KeyText = msgspec.field(name="key")  # `--key` is the access key of the command line

    @property
    def ref(self) -> ActorRef:
        """Its identity; raises `InvalidValue`."""
        return ActorRef(checked_type(self.type), read_key(self.actor_key))


def shown(value: Any) -> Any:
    """Return a decoded MessagePack value as JSON can have it; bytes are in base64."""
    match value:
        case dict():
            return {_name(key): shown(each) for key, each in value.items()}
        case list() | tuple():
            return [shown(each) for each in value]
        case msgspec.msgpack.Ext():
            return {"$ext": value.code, "data": value.data}
        case _:
            return value


def _name(key: Any) -> str:
    return key if isinstance(key, str) else msgspec.json.encode(shown(key)).decode()


def decoded(body: bytes) -> Any:
    """Return MessagePack as JSON can have it; what cannot be decoded stays as it is."""
    plain: Callable[[bytes], Any] = msgspec.msgpack.decode
    try:
        return shown(plain(body)) if body else None
    except (msgspec.MsgspecError, RecursionError):
        return body
