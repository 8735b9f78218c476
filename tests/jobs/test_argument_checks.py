"""Arguments are compared with the handler's signature at submit, and refused by name."""

from __future__ import annotations

import datetime
import gc
import traceback
import warnings
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import msgspec
import pytest

from relevo import App
from relevo.errors import InvalidValue
from relevo.jobs import JobContext, JobFailed

if TYPE_CHECKING:
    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio


class Line(msgspec.Struct):
    article: str
    price: float


async def charge(
    ctx: JobContext, customer: str, amount: int, when: datetime.date | None = None,
    lines: list[Line] | None = None, key: UUID | None = None, rate: float = 1.0,
) -> None:  # fmt: skip
    raise LookupError(f"no customer {customer}\nin the books")


@pytest.mark.parametrize(
    ("data", "refusal", "pointer"),
    [
        ({"customer": "ana", "amount": "twelve"},
         "argument 'amount' of handler 'charge': Expected `int`, got `str`; it came as 'twelve'",
         "data/amount"),
        ({"customer": "ana", "amount": 3, "lines": [{"article": "x", "price": "y"}]},
         "'lines' of handler 'charge': Expected `float`, got `str` - at `$[0].price`; it came",
         "data/lines"),
        ({"customer": "ana"}, "'charge' needs 'amount' (int), which data lacks", "data"),
        ({"customer": "ana", "amuont": 3},
         "handler 'charge' has no argument 'amuont'; its arguments: amount, customer, key, lines",
         "data"),
        (["ana", 3], "data of 'charge' is an object of arguments, not ['ana', 3]", "data"),
    ],
)  # fmt: skip
async def test_arguments_are_checked_at_submit(data: Any, refusal: str, pointer: str) -> None:
    app = App()
    app.job("charge")(charge)
    with pytest.raises(InvalidValue) as refused:  # before there is a connection
        await app.jobs.submit("charge", data)
    assert refusal in refused.value.message
    assert refused.value.pointer == pointer
    with pytest.raises(InvalidValue) as refused:
        await app.jobs.submit_many("charge", [{"customer": "ana", "amount": 1}] * 99 + [data])
    assert refused.value.message.startswith("data[99]: ")
    assert refusal in refused.value.message


async def test_what_json_changes_is_checked_as_it_will_be_read(office: Office) -> None:
    app = office.new_app()
    definition = app.job("charge", retries=0)(charge)
    await office.serve(app)
    good = {
        "customer": "ana", "amount": 3, "when": datetime.date(2030, 1, 2), "key": uuid4(),
        "lines": [Line("x", 2.0)], "rate": 2,
    }  # fmt: skip
    jobs = [await app.jobs.submit("charge", good), await definition.submit("ana", 3)]
    with pytest.raises(InvalidValue, match=r"^data\[1\]"):
        await app.jobs.submit_many("charge", [good, {**good, "amount": None}, good])
    assert await office.jobs.query().where(handler="charge").count() == 2
    for job in jobs:
        with pytest.raises(JobFailed) as failed:
            await job.wait(30)
    # The error first, then the way to it.
    shown = "".join(traceback.format_exception_only(failed.value))
    first, _, rest = shown.partition("In the handler:\nTraceback (most recent call last):")
    assert f"{jobs[1].id} ended as 'Failed': LookupError: no customer ana\nin the books" in first
    assert "in charge" in rest
    assert failed.value.traceback is not None


async def test_a_submit_without_await_is_named(office: Office) -> None:
    app = App()
    definition = app.job("charge")(charge)
    for forget in (
        lambda: definition.submit("ana", 3), lambda: app.jobs.submit("charge"),
        lambda: app.jobs.submit(handler="charge"),
    ):  # fmt: skip
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            forget()
            gc.collect()
        assert "submit of job 'charge' (nothing is stored: write `await`" in str(seen[0].message)


async def test_a_function_may_have_two_names(office: Office) -> None:
    app = office.new_app()

    @app.job("new name")
    @app.job("old name")
    async def run(ctx: JobContext) -> str:
        return "run"

    await office.serve(app)
    for name in ("old name", "new name"):
        assert await (await office.jobs.submit(name)).wait(30) == "run"
