"""An interface with every kind of parameter, for the tests of codecs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 - annotations are read
from decimal import Decimal  # noqa: TC003
from enum import Enum
from typing import Any
from uuid import UUID  # noqa: TC003

from msgspec import Struct

from relevo.actors.core.identity import ActorRef
from relevo.actors.interfaces import Interface, Interfaces, method


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Order(Struct):
    number: int
    owner: Account | None = None
    tags: list[str] = []


class InsufficientFunds(Exception):
    def __init__(self, missing: Decimal, at: datetime | None = None) -> None:
        super().__init__(f"{missing} are missing")
        self.missing = missing
        self.at = at


class Unnamed(Exception):
    def __init__(self, amount: Decimal) -> None:
        self.amount = amount


@dataclass(frozen=True)
class Frozen(Exception):
    account: UUID
    reason: str = "audit"


class Account(Interface):
    async def deposit(self, cents: int) -> int: ...

    @method(raises=(InsufficientFunds, Unnamed, Frozen), idempotent=True)
    async def withdraw(self, amount: Decimal) -> None: ...

    async def mixed(
        self, key: UUID, at: datetime, colour: Colour, raw: bytes, scores: dict[str, list[float]]
    ) -> tuple[int, str | None]: ...

    async def give(
        self,
        to: Account,
        order: Order,
        tags: list[str] = [],  # noqa: B006 - a default that callers could share
        *,
        urgent: bool = False,
    ) -> Order: ...

    async def anything(self, value: Any = None) -> Any: ...


class Savings(Account, Interface):
    async def interest(self, rate: float) -> None: ...


class Stub:
    """What the codec needs of a proxy."""

    def __init__(self, interface: type, canonical: str) -> None:
        self.interface = interface
        self.ref = ActorRef.read(canonical)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stub) and self.ref == other.ref

    def __hash__(self) -> int:
        return hash(self.ref)


def interfaces() -> Interfaces:
    return Interfaces(Stub)
