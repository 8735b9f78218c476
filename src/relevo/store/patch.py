"""Patches: changes to parts of an item, over JSON pointers, as in the reference. Pure.

    add      /a      sets a member; in an array inserts before the place, `-` or its length appends
    set      /a      sets a member or the element at a place; `-` appends
    replace  /a      sets an existing value
    remove   /a      removes an existing value
    incr     /a      adds a number; a missing value counts as 0
    move     /a      moves the value at `from` there

Objects on the way must exist. Operations are given as here or as JSON (`{"op": "incr", "path":
"/visits", "value": 1}`); they apply in order, and all or none of them.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final, assert_never

import msgspec
from msgspec import Struct

from relevo.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OPERATIONS_MAX: Final = 100
SYSTEM: Final = frozenset({"_rid", "_etag", "_ts", "_lsn", "_self"})
"""Members that the store owns; it drops them from items and patches cannot touch them."""


class Add(Struct, frozen=True, tag_field="op", tag="add", forbid_unknown_fields=True):
    """Set a member, or insert an element."""

    path: str
    value: Any


class Set(Struct, frozen=True, tag_field="op", tag="set", forbid_unknown_fields=True):
    """Set a member or an element, whether it exists or not."""

    path: str
    value: Any


class Replace(Struct, frozen=True, tag_field="op", tag="replace", forbid_unknown_fields=True):
    """Set a member or an element that exists."""

    path: str
    value: Any


class Remove(Struct, frozen=True, tag_field="op", tag="remove", forbid_unknown_fields=True):
    """Remove a member or an element."""

    path: str


class Incr(Struct, frozen=True, tag_field="op", tag="incr", forbid_unknown_fields=True):
    """Add to a number."""

    path: str
    value: int | float


class Move(Struct, frozen=True, tag_field="op", tag="move", forbid_unknown_fields=True):
    """Move the value at `source` (in JSON: `from`) to `path`."""

    source: str = msgspec.field(name="from")
    path: str


Operation = Add | Set | Replace | Remove | Incr | Move


def checked(operations: Sequence[Operation | Mapping[str, Any]]) -> list[Operation]:
    """Return operations given as structs or as JSON, or refuse an invalid one by its number."""
    if not 1 <= len(operations) <= OPERATIONS_MAX:
        raise InvalidValue(
            f"a patch has 1 to {OPERATIONS_MAX} operations, not {len(operations)}",
            pointer="/operations",
        )
    found: list[Operation] = []
    for number, given in enumerate(operations):
        try:
            plain = msgspec.to_builtins(given if isinstance(given, Struct) else dict(given))
            found.append(msgspec.convert(plain, type=Operation))
        except (msgspec.ValidationError, TypeError, ValueError, RecursionError) as error:
            raise InvalidValue(
                f"operation {number} of the patch is invalid: {error}",
                pointer=f"/operations/{number}",
            ) from error
    return found


def apply(document: Mapping[str, Any], operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the document with the operations applied; the given one stays as it is.

    `InvalidValue` names the first operation that cannot be applied; its `pointer` says which.
    """
    result = copy.deepcopy(dict(document))
    for number, operation in enumerate(operations):
        try:
            _apply(result, operation)
        except InvalidValue as error:
            error.pointer = f"/operations/{number}"
            raise
        except RecursionError as error:
            raise InvalidValue(
                f"operation {number} of the patch has a value that is nested too deeply",
                pointer=f"/operations/{number}",
            ) from error
    return result


def parse_pointer(path: str) -> tuple[str, ...]:
    """Return the names along a JSON pointer such as `/a/b/0`."""
    if not path.startswith("/") or len(path) < 2:
        raise InvalidValue(f"a path looks like '/a/b/0', not {path!r}")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in path[1:].split("/"))


def _apply(document: dict[str, Any], operation: Operation) -> None:
    # Values are copied: what an operation put in place, a later one may change there.
    match operation:
        case Add():
            _Place(document, operation.path).add(copy.deepcopy(operation.value))
        case Set():
            _Place(document, operation.path).set(copy.deepcopy(operation.value))
        case Replace():
            place = _Place(document, operation.path)
            place.get()
            place.set(copy.deepcopy(operation.value))
        case Remove():
            _Place(document, operation.path).remove()
        case Incr():
            _increment(_Place(document, operation.path), operation.value)
        case Move():
            _move(document, operation)
        case _:
            assert_never(operation)


def _increment(place: _Place, by: float) -> None:
    before = place.get() if place.exists else 0
    if isinstance(before, bool) or not isinstance(before, int | float):
        raise InvalidValue(f"what is at {place.path!r} is {type(before).__name__}, not a number")
    try:
        place.set(before + by)
    except OverflowError:
        raise InvalidValue(f"the number at {place.path!r} is too large to add {by} to") from None


def _move(document: dict[str, Any], operation: Move) -> None:
    if f"{operation.path}/".startswith(f"{operation.source}/"):
        raise InvalidValue(f"{operation.source!r} cannot move into itself at {operation.path!r}")
    value = _Place(document, operation.source).remove()
    _Place(document, operation.path).add(value)


class _Place:
    """A member of an object or an element of an array that an operation is about."""

    def __init__(self, document: dict[str, Any], path: str) -> None:
        *way, self._name = parse_pointer(path)
        if (way[0] if way else self._name) in SYSTEM:
            raise InvalidValue(f"{path!r} belongs to the store and cannot be patched")
        self.path = path
        self._holder: Any = document
        for name in way:
            self._holder = self._child(name)
        if not isinstance(self._holder, dict | list):
            raise self._nothing()

    @property
    def exists(self) -> bool:
        if isinstance(self._holder, dict):
            return self._name in self._holder
        return self._index(self._name) in range(len(self._holder))

    def get(self) -> Any:
        return self._child(self._name)

    def set(self, value: Any) -> None:
        if isinstance(self._holder, dict):
            self._holder[self._name] = value
        elif self._name == "-":
            self._holder.append(value)
        elif self.exists:
            self._holder[self._index(self._name)] = value
        else:
            raise self._nothing()

    def add(self, value: Any) -> None:
        if isinstance(self._holder, dict):
            self._holder[self._name] = value
            return
        index = len(self._holder) if self._name == "-" else self._index(self._name)
        if not 0 <= index <= len(self._holder):
            raise self._nothing()
        self._holder.insert(index, value)

    def remove(self) -> Any:
        value = self._child(self._name)
        del self._holder[self._name if isinstance(self._holder, dict) else self._index(self._name)]
        return value

    def _child(self, name: str) -> Any:
        if isinstance(self._holder, dict) and name in self._holder:
            return self._holder[name]
        if isinstance(self._holder, list) and self._index(name) in range(len(self._holder)):
            return self._holder[self._index(name)]
        raise self._nothing()

    def _index(self, name: str) -> int:
        """The place in an array that a name means; -1 is none."""
        plain = name.isascii() and name.isdigit() and (name == "0" or name[0] != "0")
        return int(name) if plain and len(name) < 10 else -1

    def _nothing(self) -> InvalidValue:
        return InvalidValue(f"the item has nothing at {self.path!r}")
