"""How results look, and how fields become options: both without a database."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import UUID

import click
import msgspec
import pytest
import yaml
from msgspec import Meta, Struct
from rich.console import Console

from relevo.cli.generic import fields
from relevo.cli.output.formats import text_of
from relevo.cli.output.printing import printable
from relevo.cli.output.render import Renderer
from relevo.cli.session import OUTPUTS
from relevo.kernel.command_words import singular
from relevo.kernel.operation import Operation

if TYPE_CHECKING:
    from relevo.cli.session import Output
    from tests.e2e.conftest import Cli


class Thing(Struct, frozen=True, kw_only=True):
    name: str
    live: bool = True
    labels: dict[str, str] = {}
    made_at: datetime | None = None


class Things(Struct, frozen=True):
    items: list[Thing]


class Holder(Struct, frozen=True):
    thing: Thing
    secret: str


def _shown(
    value: Struct, *, terminal: bool = False, output: Output = "table", width: int = 100
) -> str:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=width, color_system=None)
    Renderer(output, console).result(value)
    return file.getvalue()


def test_a_pipe_gets_plain_columns_without_those_that_are_empty() -> None:
    made = datetime(2031, 5, 30, 20, tzinfo=UTC)
    rows = Things([Thing(name="a", made_at=made), Thing(name="longer", live=False)])
    assert _shown(rows) == (
        "NAME    LIVE  MADE_AT\n"
        "a       yes   2031-05-30T20:00:00Z\n"
        "longer  no    -\n"
    )  # fmt: skip


def test_columns_are_aligned_by_what_a_terminal_shows() -> None:
    lines = _shown(Things([Thing(name="日本"), Thing(name="abcd")])).splitlines()
    assert lines[1:] == ["日本  yes", "abcd  yes"]


def test_lines_are_never_broken_in_a_pipe() -> None:
    assert len(_shown(Things([Thing(name="x" * 500)])).splitlines()) == 2


def test_a_terminal_gets_times_both_exact_and_relative() -> None:
    now = datetime.now(UTC)
    shown = _shown(Things([Thing(name="a", made_at=now - timedelta(hours=3))]), terminal=True)
    assert "(3 h ago)" in shown
    assert f"{(now - timedelta(hours=3)).astimezone():%Y-%m-%d %H:%M}" in shown
    later = _shown(Things([Thing(name="a", made_at=now + timedelta(days=2.1))]), terminal=True)
    assert "(in 2 d)" in later


class Wide(Struct, frozen=True, kw_only=True):
    id: UUID
    name: str
    status: str = "waiting_for_resources"
    made_at: datetime = datetime(2031, 5, 30, 20, tzinfo=UTC)
    host: str = "kitchen-7"
    note: str = "because of the weather"


class Wides(Struct, frozen=True):
    items: list[Wide]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_a_narrow_terminal_gets_fewer_columns_and_whole_ids(width: int) -> None:
    rows = Wides([Wide(id=UUID(int=n), name="send the mail of today") for n in range(3)])
    lines = _shown(rows, terminal=True, width=width).splitlines()
    assert max(map(len, lines)) <= width
    for one in rows.items:
        assert sum(str(one.id) in line for line in lines) == 1
    heads = ["id", "name", "status", "made at", "host", "note"]
    shown = [head for head in heads if head in lines[1]]
    assert shown == heads[: len(shown)]  # what matters least goes first
    left = " ".join(" ".join(lines[6:]).split())
    for head in heads[len(shown) :]:
        assert head in left
    assert ("--output json" in left) == (len(shown) < len(heads))
    assert len(shown) >= {40: 1, 60: 2, 80: 3, 100: 4, 120: 5, 200: 6}[width]


def test_one_thing_is_a_field_on_each_line_with_nothing_broken() -> None:
    secret = "s" * 300
    shown = _shown(Holder(Thing(name="a", labels={"k": "v"}), secret)).splitlines()
    assert shown == [
        "thing.name      a",
        "thing.live      yes",
        "thing.labels.k  v",
        "thing.made_at   -",
        f"secret          {secret}",
    ]


def test_progress_is_shown_in_percent() -> None:
    class Running(Struct, frozen=True):
        progress: float | None

    assert _shown(Running(0.13333334028720856)) == "progress  13%\n"
    assert _shown(Running(None)) == "progress  -\n"


def test_json_is_the_value_itself() -> None:
    rows = Things([Thing(name="[bold]a[/]")])
    assert msgspec.json.decode(_shown(rows, output="json"), type=Things) == rows


@pytest.mark.parametrize("terminal", [True, False])
def test_names_are_shown_as_they_are_and_cannot_drive_the_terminal(terminal: bool) -> None:
    shown = _shown(Things([Thing(name="[red]x[/red] :smile: \x1b[2J\n")]), terminal=terminal)
    assert "[red]x[/red] :smile: \\x1b[2J\\n" in shown
    assert "\x1b[2J" not in shown


def test_what_is_printable_stays() -> None:
    assert printable("ñandú 日本") == "ñandú 日本"
    assert printable("a\u202eb\ud800") == "a\\u202eb\\ud800"


class Everything(Struct, frozen=True, kw_only=True, rename="camel"):
    key_id: Annotated[str, Meta(description="Which.")]
    size_max: int
    ratio: float = 0.5
    loud: bool = False
    kind: Literal["a", "b"] = "a"
    tags: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    policies: list[dict[str, Any]] = []
    since: Annotated[datetime, Meta(tz=True)] | None = None
    owner: UUID | None = None
    anything: int | list[int] | None = None


async def _handler(*_: object) -> None: ...


OPERATION = Operation(
    name="things.make",
    method="POST",
    path="/v1/things/{keyId}:make",
    summary="Make.",
    request=Everything,
    response=None,
    permission="public",
    handler=_handler,
)


def _values(*arguments: str) -> dict[str, Any]:
    command = click.Command("make", params=fields.parameters(OPERATION), callback=lambda **kw: kw)
    given = command.main(list(arguments), standalone_mode=False)
    return fields.values(OPERATION, given)


def test_fields_of_every_kind_are_read_from_the_command_line() -> None:
    values = _values(
        "k1", "--size-max", "3", "--ratio", "0.25", "--loud", "--kind", "b",
        "--tag", "x", "--tag", "y", "--label", "a=1", "--label", "b=2=3",
        "--policy", '{"n": 1}', "--since", "2031-05-30T18:00:00+02:00",
        "--owner", "12345678-1234-5678-1234-567812345678", "--anything", "[1, 2]",
    )  # fmt: skip
    command = msgspec.convert(values, Everything)
    assert command == Everything(
        key_id="k1",
        size_max=3,
        ratio=0.25,
        loud=True,
        kind="b",
        tags=("x", "y"),
        labels={"a": "1", "b": "2=3"},
        policies=[{"n": 1}],
        since=datetime(2031, 5, 30, 16, tzinfo=UTC),
        owner=UUID("12345678-1234-5678-1234-567812345678"),
        anything=[1, 2],
    )


def test_only_what_was_given_is_sent_under_the_names_of_the_wire() -> None:
    assert _values("k1", "--size-max", "3") == {"keyId": "k1", "sizeMax": 3}
    assert _values("k1", "--size-max", "3", "--no-loud")["loud"] is False


@pytest.mark.parametrize(
    "wrong",
    [
        ("--label", "a"),
        ("--kind", "c"),
        ("--since", "2031-05-30T18:00:00"),
        ("--owner", "me"),
        ("--policy", "{"),
        ("--tag", "\udcff"),
        ("--ratio", "half"),
    ],
)
def test_what_does_not_fit_its_field_is_refused(wrong: tuple[str, str]) -> None:
    with pytest.raises(click.UsageError):
        _values("k1", "--size-max", "3", *wrong)


@pytest.mark.parametrize(
    ("plural", "one"),
    [("hosts", "host"), ("policies", "policy"), ("system", "system"), ("status", "status")],
)
def test_nouns_are_singular(plural: str, one: str) -> None:
    assert singular(plural) == one


HOSTILE = "a\x9b31m\u202eb\u2066c\x85d\x7fe\u200ff\U000e0001g"


def test_json_on_a_terminal_escapes_what_would_change_the_terminal() -> None:
    things = Things([Thing(name=HOSTILE, labels={HOSTILE: "é 日本"})])
    shown = _shown(things, terminal=True, output="json")
    assert all(line.isprintable() for line in shown.splitlines())
    assert "\\u009b31m\\u202eb\\u2066c\\u0085d\\u007fe" in shown
    assert "é 日本" in shown
    assert msgspec.json.decode(shown, type=Things) == things
    piped = _shown(things, output="json")
    assert "\x9b" in piped  # for programs, which need it as it is
    assert msgspec.json.decode(piped, type=Things) == things


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize(
    "value", [Things([Thing(name=HOSTILE, labels={HOSTILE: HOSTILE})]), Thing(name=HOSTILE)]
)
def test_nothing_on_a_terminal_has_characters_that_would_change_it(
    value: Struct, output: Output
) -> None:
    shown = _shown(value, terminal=True, output=output)
    assert all(line.isprintable() for line in shown.splitlines())


def test_lines_of_json_on_a_terminal_are_escaped_too(cli: Cli) -> None:
    cli("job", "submit", "missing", "--name", "a\x9b31m\u202eb")
    for arguments in (("list", "-o", "json"), ("watch", "--once", "-o", "json"), ("list",)):
        terminal = cli.on_terminal("job", *arguments)
        assert terminal.end() == 0, terminal.said
        assert not {"\x9b", "\u202e"} & set(terminal.said)


ROWS = Things([Thing(name="no", labels={"k": "v"}), Thing(name='b,\n"', live=False)])


def test_yaml_is_read_back_as_the_same_value() -> None:
    values = {
        "list": [1, {"b": [], "c": {"d": "no", "e": None}}, [1, 2, ["x y"]]],
        "time": "2031-05-30T18:00:00Z", "text": HOSTILE.replace("\U000e0001", "") + "\n: #",
        "small": 1e-7, "": {}, "n": "1",
    }  # fmt: skip
    assert yaml.safe_load(text_of(values, "yaml")) == values
    assert yaml.safe_load(_shown(ROWS, output="yaml")) == msgspec.to_builtins(ROWS)


def test_csv_has_all_fields_and_is_read_back() -> None:
    read = list(csv.DictReader(io.StringIO(_shown(ROWS, output="csv"))))
    assert [row["name"] for row in read] == ["no", 'b,\n"']
    assert (read[0]["labels"], read[1]["live"], read[0]["made_at"]) == ('{"k": "v"}', "false", "")


def test_ids_are_one_on_each_line() -> None:
    assert _shown(Things([Thing(name="a"), Thing(name="b")]), output="ids") == "a\nb\n"
    leases = [{"kind": "feed", "unit": "u", "name": "0-10", "id": 1}]
    assert text_of({"items": leases}, "ids", "LeaseInfo") == "feed u 0-10\n"


def test_values_that_follow_each_other_can_be_told_apart() -> None:
    file = io.StringIO()
    cases: tuple[tuple[Output, str], ...] = (
        ("json", '{"a": 1}\n{"a": 2}\n'),
        ("yaml", "---\na: 1\n---\na: 2\n"),
        ("csv", "a\n1\n2\n"),
    )
    for form, wanted in cases:
        file.seek(file.truncate(0))
        renderer = Renderer(form, Console(file=file, width=100))
        for number in (1, 2):
            renderer.data({"a": number}, line=True)
        assert file.getvalue() == wanted
