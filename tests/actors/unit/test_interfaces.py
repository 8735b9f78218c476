"""What travels in a call: arguments, results, proxies; what is refused, and by which words."""

from __future__ import annotations

import contextlib
import inspect
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo.actors.interfaces import (
    Interface,
    Interfaces,
    MethodSpec,
    check_implementation,
    markers_of,
    method,
    reminder_handler,
    timer,
    upgrade,
)
from relevo.errors import ActorError, BadArguments, InvalidValue, UnknownMethod
from tests.actors.unit.bank import Account, Colour, Order, Savings, Stub, interfaces

if TYPE_CHECKING:
    from collections.abc import Callable

DIGESTS = {
    "anything": "56997f72449a03c0",
    "deposit": "2e58cec8378712e3",
    "give": "2beee4d59ce2b2c9",
    "mixed": "9caed7fc19f5990c",
    "withdraw": "9c7fda6330b2e622",
}
BOB: Any = Stub(Account, "account/s:bob")
ACCOUNT: Any = Account
SAVINGS: Any = Savings
ID = UUID(int=7)
NOW = datetime(2026, 1, 2, tzinfo=UTC)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def spec(name: str) -> MethodSpec:
    return interfaces().of(Account).method(name)


def travelled(of: MethodSpec, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    return of.decode_arguments(of.encode_arguments(args, kwargs))


@given(
    st.uuids(),
    st.datetimes(timezones=st.just(UTC)),
    st.sampled_from(Colour),
    st.binary(max_size=50),
    st.dictionaries(TEXT, st.lists(st.floats(allow_nan=False), max_size=3), max_size=3),
    st.tuples(st.integers(-(2**63), 2**63 - 1), st.none() | TEXT),
)
def test_arguments_and_results_come_back_equal(
    key: UUID, at: datetime, colour: Colour, raw: bytes, scores: Any, result: Any
) -> None:
    of = _MIXED
    assert travelled(of, key, at, colour, raw, scores) == (key, at, colour, raw, scores)
    assert of.decode_result(of.encode_result(result)) == result


_MIXED = spec("mixed")


def test_caller_and_actor_share_no_object() -> None:  # I32
    order, tags = Order(1, None, ["a"]), ["b"]
    of = spec("give")
    _, got, got_tags, _ = travelled(of, BOB, order, tags)
    assert got == order
    assert got is not order
    assert got.tags is not order.tags
    assert got_tags is not tags
    assert of.decode_result(of.encode_result(order)) is not order
    first, second = travelled(of, BOB, order), travelled(of, BOB, order)
    assert first[2] is not second[2]


def test_a_missing_default_is_fresh_for_each_call() -> None:  # I32
    of = spec("give")
    short = msgspec.msgpack.encode(["account/s:bob", {"number": 1}])
    first, second = of.decode_arguments(short), of.decode_arguments(short)
    assert first == (BOB, Order(1), [], False)
    assert first[2] is not second[2]


def test_a_proxy_travels_as_its_canonical_id() -> None:
    of = spec("give")
    body = of.encode_arguments((BOB, Order(1, BOB)), {"urgent": True})
    assert msgspec.msgpack.decode(body)[0] == "account/s:bob"
    to, order, _, urgent = of.decode_arguments(body)
    assert (to, order.owner, urgent) == (BOB, BOB, True)
    assert isinstance(to, ACCOUNT)
    assert not isinstance(to, SAVINGS)


def test_an_array_with_fewer_arguments_gets_the_defaults_of_the_actor() -> None:
    assert spec("anything").decode_arguments(b"\x90") == (None,)


def test_arguments_by_name_come_as_json() -> None:
    of = spec("give")
    assert of.decode_named(b'{"to": "account/s:bob", "order": {"number": 2}, "urgent": true}') == (
        BOB, Order(2), [], True,
    )  # fmt: skip
    for body in (b'{"to": "account/s:bob"}', b"[]", b"{", b'{"to": 1, "order": {"number": 2}}'):
        with pytest.raises(BadArguments):
            of.decode_named(body)


BAD_ARGUMENTS: list[tuple[str, tuple[Any, ...], dict[str, Any], str | None, str]] = [
    ("deposit", ("x",), {}, "cents", "expects int as 'cents', not 'x' (str)"),
    ("deposit", (True,), {}, "cents", "not True (bool)"),
    ("deposit", (None,), {}, "cents", "not None (NoneType)"),
    ("deposit", (1.5,), {}, "cents", "not 1.5 (float)"),
    ("deposit", (2**64,), {}, "cents", "expects int"),
    ("deposit", (), {}, "cents", "misses the argument 'cents'"),
    ("deposit", (1, 2), {}, None, "takes 1 positional arguments, not 2"),
    ("deposit", (1,), {"cents": 2}, "cents", "twice"),
    ("deposit", (), {"cent": 1}, "cent", "takes no argument 'cent'"),
    ("mixed", (str(ID), NOW, Colour.RED, b"", {}), {}, "key", "expects UUID"),
    ("mixed", (ID, NOW.isoformat(), Colour.RED, b"", {}), {}, "at", "expects datetime"),
    ("mixed", (ID, NOW, "red", b"", {}), {}, "colour", "expects Colour"),
    ("mixed", (ID, NOW, Colour.RED, "raw", {}), {}, "raw", "expects bytes"),
    ("mixed", (ID, NOW, Colour.RED, b"", {"a": ["x"]}), {}, "scores", "Expected `float`"),
    ("mixed", (ID, NOW, Colour.RED, b"", {"\ud800": []}), {}, "scores", "expects dict"),
    ("give", ("account/s:bob", Order(1)), {}, "to", "expects Account"),
    ("give", (BOB, {"number": 1}), {}, "order", "expects Order"),
    ("give", (BOB, Order("x")), {}, "order", "Expected `int`, got `str`"),  # type: ignore[arg-type]
    ("give", (BOB, Order(1), [], True), {}, None, "takes 3 positional"),
    ("anything", (object(),), {}, "value", "values of object cannot travel"),
]


@pytest.mark.parametrize(("name", "args", "kwargs", "pointer", "says"), BAD_ARGUMENTS)
def test_bad_arguments_are_refused_before_they_leave(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], pointer: str | None, says: str
) -> None:
    with pytest.raises(BadArguments) as caught:
        spec(name).encode_arguments(args, kwargs)
    assert caught.value.pointer == pointer
    assert says in caught.value.message
    assert caught.value.executed is False


@pytest.mark.parametrize(
    "body",
    [b"", b"\x90", b"\x92\x01\x02", b"\x91\xa1x", b"\xc1", b"\x80", b"\x91\xc3", b"\x91" * 5000],
)
def test_bad_bodies_are_refused_where_they_arrive(body: bytes) -> None:
    with pytest.raises(BadArguments, match=r"Account\.deposit"):
        spec("deposit").decode_arguments(body)


@given(st.binary(max_size=40))
def test_any_body_is_arguments_or_refused(body: bytes) -> None:
    with contextlib.suppress(BadArguments):
        assert len(_MIXED.decode_arguments(body)) == 5


def test_a_proxy_of_no_actor_is_refused() -> None:
    body = msgspec.msgpack.encode(["no actor", {"number": 1}])
    with pytest.raises(BadArguments, match="'to'"):
        spec("give").decode_arguments(body)


def test_a_result_that_is_not_the_annotation_is_refused_at_both_ends() -> None:
    with pytest.raises(ActorError, match="returned 'x'") as caught:
        spec("deposit").encode_result("x")
    assert caught.value.executed is True
    with pytest.raises(ActorError, match="other code") as caught:
        spec("deposit").decode_result(b"\xa1x")
    assert caught.value.executed is None


def test_digests_are_the_same_in_every_process_and_version() -> None:
    assert {name: one.digest for name, one in interfaces().of(Account).methods.items()} == DIGESTS


def test_a_digest_changes_with_names_types_and_fields() -> None:
    def digest(function: Any) -> str:
        return interfaces().of(type("Any", (Interface,), {"f": function})).method("f").digest

    async def f(self: Any, a: int) -> None: ...
    async def name(self: Any, b: int) -> None: ...
    async def kind(self: Any, a: str) -> None: ...
    async def result(self: Any, a: int) -> int:
        return a

    async def default(self: Any, a: int = 1) -> None: ...

    plain = digest(f)
    assert len({plain, digest(name), digest(kind), digest(result)}) == 4
    assert digest(default) == plain

    def with_struct(*fields: Any) -> str:
        order = msgspec.defstruct("Order", [("a", int), *fields])

        async def g(self: Any, a: Any) -> None: ...

        g.__annotations__["a"] = order
        return digest(g)

    assert with_struct() == with_struct()
    assert with_struct() != with_struct(("b", int, 1))


def test_interfaces_extend_interfaces() -> None:
    savings = interfaces().of(Savings)
    assert set(savings.methods) == {*DIGESTS, "interest"}
    assert savings.method("deposit").digest == spec("deposit").digest
    with pytest.raises(UnknownMethod, match="deposit"):
        savings.method("depost")


def test_everything_wrong_with_an_interface_is_said_at_once() -> None:
    class Bad(Interface):
        def plain(self) -> None: ...
        async def unannotated(self, a) -> None: ...  # type: ignore[no-untyped-def]
        async def no_result(self): ...  # type: ignore[no-untyped-def]
        async def variadic(self, *args: int) -> None: ...
        async def call(self) -> None: ...
        async def default(self, a: int = "x") -> None: ...  # type: ignore[assignment]
        async def ambiguous(self, a: datetime | UUID) -> None: ...

    with pytest.raises(InvalidValue) as caught:
        interfaces().of(Bad)
    for name in ("plain", "unannotated", "no_result", "variadic", "call", "default", "ambiguous"):
        assert f"{name}: " in caught.value.message


def test_a_type_that_is_only_imported_for_checkers_is_named() -> None:
    async def f(self: Any, a: Any) -> None: ...

    f.__annotations__["a"] = "Nowhere"
    with pytest.raises(InvalidValue, match=r"Nowhere.*TYPE_CHECKING"):
        interfaces().of(type("Bad", (Interface,), {"f": f}))


@pytest.mark.parametrize("kind", [int, Interface, Order])
def test_what_is_no_interface_is_refused(kind: type) -> None:
    with pytest.raises(InvalidValue, match="no interface"):
        interfaces().of(kind)


def test_interfaces_as_json_schema() -> None:
    schema = interfaces().schema([Account, Savings])
    deposit = schema["interfaces"]["Savings"]["deposit"]
    assert deposit["result"] == {"type": "integer"}
    components = schema["components"]["schemas"]
    give = components[schema["interfaces"]["Account"]["give"]["arguments"]["$ref"].split("/")[-1]]
    assert give["required"] == ["to", "order"]
    assert give["properties"]["to"]["type"] == "string"
    assert give["properties"]["order"] == {"$ref": "#/components/schemas/Order"}
    assert give["properties"]["urgent"] == {"type": "boolean", "default": False}


# --- classes that implement interfaces


class Small(Interface):
    async def first(self, a: int, b: str = "b") -> float: ...

    @method(read_only=True, raises=(KeyError,))
    async def second(self, *, when: datetime) -> None: ...


def check(cls: type, *kinds: type) -> dict[str, MethodSpec]:
    codec = interfaces()
    return check_implementation(cls, [codec.of(kind) for kind in kinds or (Small,)])


def test_an_implementation_may_widen_block_and_leave_annotations_out() -> None:
    class Good:
        def first(self, a: int | None, b: Any, extra: int = 0) -> int:
            return 1

        @method(cancel=True, raises=(ValueError,))
        async def second(self, *, when) -> None:  # type: ignore[no-untyped-def]
            pass

    methods = check(Good)
    assert set(methods) == {"first", "second"}
    options = methods["second"].options
    assert (options.read_only, options.cancel, options.raises) == (
        True,
        True,
        (KeyError, ValueError),
    )
    assert methods["first"].call(Good().first, (1, "b")) == 1
    outcome = methods["second"].call(Good().second, (NOW,))
    assert inspect.iscoroutine(outcome)
    outcome.close()


def test_everything_wrong_with_a_class_is_said_at_once() -> None:
    class Bad(Small):
        async def first(self, a: str, c: str, more: int) -> str:  # type: ignore[override]
            return a

    with pytest.raises(InvalidValue) as caught:
        check(Bad)
    for words in (
        "'a' is str, which does not take every int",
        "parameter 2 is 'b' in Small, and 'c' here",
        "returns str, not float",
        "second: is missing",
    ):
        assert words in caught.value.message


def test_two_interfaces_that_contradict_are_refused() -> None:
    class Other(Interface):
        async def first(self, a: str) -> None: ...

    class Both:
        async def first(self, a: Any, b: str = "") -> Any: ...
        async def second(self, *, when: datetime) -> None: ...

    with pytest.raises(InvalidValue, match="Small and Other declare it differently"):
        check(Both, Small, Other)


def test_marks_of_a_class_and_its_bases() -> None:
    class Base:
        @timer(every=5)
        async def tick(self) -> None: ...

        @upgrade(2)
        @staticmethod
        def to_2(old: Any) -> Any:
            return {**old, "two": True}

    class Derived(Base):
        @reminder_handler
        async def bill(self) -> None: ...

        @staticmethod
        @upgrade(3)
        def to_3(old: Any) -> Any:
            return {**old, "three": True}

    marks = markers_of(Derived)
    assert marks.timers["tick"].every == 5
    assert marks.reminder_handlers == {"bill"}
    assert marks.upgrades[3](marks.upgrades[2]({})) == {"two": True, "three": True}


def test_bad_options_are_refused() -> None:
    bads: list[Callable[[], Any]] = [
        lambda: method(raises=(int,)),  # type: ignore[arg-type]
        lambda: method(read_only=True, interleave=True),
        lambda: timer(),
        lambda: timer(every=0),
        lambda: timer(after=float("nan")),
        lambda: upgrade(1),
    ]
    for bad in bads:
        with pytest.raises(InvalidValue):
            bad()


def test_an_app_makes_the_spec_of_an_interface_once() -> None:
    codec = Interfaces(Stub)
    assert codec.of(Account) is codec.of(Account)
