"""Fills the places of the documentation that are made from the code.

    python docs/generate.py            write what has changed
    python docs/generate.py --check    only name what is out of date; exits with 1 if anything is

A place is whatever stands between `<!-- made: name -->` and `<!-- /made -->`; `PLACES` says what is
made for a name. `tests/docs` runs the check, so that no page differs from what the program does.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
import textwrap
import tomllib
import typing
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import job_tables
import message_tables
import msgspec
from prometheus_client.metrics import MetricWrapperBase

from relevo import App, errors, limits
from relevo.actors.operating import events as actor_events
from relevo.actors.states import ACTIVATION
from relevo.feed.operating.states import UNIT
from relevo.governance.core.moves import MOVE
from relevo.governance.operating import events as governance_events
from relevo.http import answers, openapi
from relevo.http.access import roles
from relevo.http.operations import OPERATIONS, SURFACES
from relevo.jobs import errors as job_errors
from relevo.jobs import events as job_events
from relevo.jobs.states import JOB as SYSTEM_JOB
from relevo.kernel.leases.model import LeaseConfig
from relevo.kernel.leases.states import HOST, LEASE
from relevo.kernel.telemetry.metrics import Metrics
from relevo.messaging import states as message_states
from relevo.messaging.model import MessageOptions
from relevo.router.core.states import JOB
from relevo.router.events import TYPES, ChannelData, ErrorData, QueueData, SelectorData
from relevo.router.wire.envelopes import NAMES
from relevo.settings import PREFIX, Settings
from relevo.webhooks import events as webhook_events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from relevo.kernel.machine import Machine
    from relevo.kernel.operation import Operation

ROOT: Final = Path(__file__).resolve().parent.parent
PLACE: Final = re.compile(r"(<!-- made: ([a-z ]+) -->\n).*?(<!-- /made -->)", re.DOTALL)

SAID_HERE: Final = {
    "pool_size": "Connections to the database at most; the heartbeat and wake-ups have their own.",
    "host": "Address on which the HTTP API listens.",
    "port": "Port on which the HTTP API listens; 0 takes a free one.",
    "signature_skew": "How far the date of a signed request may be from the server's time.",
    "requests_per_second": "Requests of one key per host; a burst is two seconds' worth.",
    "log_format": "`auto` is `console` on a terminal and `json` elsewhere.",
    "title": "What the class of the error means.",
    "status": "The HTTP status.",
    "detail": "What happened, with which value, and what to do next.",
}
"""Fields whose name is enough in the code; one that gets a docstring there loses its entry here."""

SECONDS: Final = {
    "signature_skew",
    "drain_seconds",
    "lease_expiration",
    "lease_renew",
    "lease_acquire",
    "actors_idle_seconds",
}
"""Settings that are times."""

EVENT_HEADINGS: Final = ("field", "type", "always there")


def main(arguments: Sequence[str]) -> int:
    """Fill the places, or say which pages are out of date."""
    pages = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
    stale = {page: text for page in pages if (text := filled(page)) != page.read_text("utf-8")}
    for page, text in stale.items():
        if "--check" in arguments:
            sys.stderr.write(f"{page.relative_to(ROOT)} is out of date; run docs/generate.py\n")
        else:
            page.write_text(text, "utf-8")
    return int("--check" in arguments and bool(stale))


def filled(page: Path) -> str:
    """Return a page with its places as they should be."""
    return PLACE.sub(
        lambda place: f"{place[1]}{PLACES[place[2]]()}{place[3]}", page.read_text("utf-8")
    )


def settings_table(*, with_types: bool) -> str:
    """Every setting, its variable, its default and its meaning."""
    said = attribute_docs(LeaseConfig, prefix="lease_") | attribute_docs(Settings)
    types = typing.get_type_hints(Settings)
    headings = ["setting", "environment", *(["type"] if with_types else []), "default", "meaning"]
    rows = [
        [
            f"`{name}`",
            f"`{PREFIX}{name.upper()}`",
            *([_type_name(types[name])] if with_types else []),
            _default(name),
            meaning(name, said),
        ]
        for name in Settings.__struct_fields__
    ]
    return table(headings, rows)


def error_tree() -> str:
    """The classes of errors by their bases; the table below says what each means."""
    return "```text\n" + "\n".join(_branch(errors.RelevoError, "", "")) + "\n```\n"


def _branch(kind: type[errors.RelevoError], mark: str, margin: str) -> Iterator[str]:
    also = [base.__name__ for base in kind.__bases__[:-1]]
    yield f"{mark}{kind.__name__}" + (f" (also {', '.join(also)})" if also else "")
    children = _children(kind)
    for child in children:
        edge, inner = ("└── ", "    ") if child is children[-1] else ("├── ", "│   ")
        yield from _branch(child, f"{margin}{edge}", f"{margin}{inner}")


def error_table() -> str:
    """Every error with its code, status, fault, and whether a repetition makes sense."""
    rows = [
        [
            f"`{kind.__name__}`",
            f"`{kind.code}`",
            str(kind.status),
            kind.fault,
            "yes" if kind.retryable else "no",
            _executed(kind),
            answers.sentence(kind),
        ]
        for kind in _below(errors.RelevoError)
        if kind is not errors.SystemFault
    ]
    headings = ["class", "code", "status", "fault", "retryable", "executed", "meaning"]
    return table(headings, rows)


def _executed(kind: type[errors.RelevoError]) -> str:
    if not hasattr(kind, "executed"):
        return ""
    return {False: "no", True: "yes", None: "unknown"}[kind.executed]


def problem_table() -> str:
    """The fields of a problem."""
    said = attribute_docs(answers.Problem)
    rows = [[f"`{name}`", meaning(name, said)] for name in answers.Problem.__struct_fields__]
    return table(["field", "meaning"], rows)


def operation_table() -> str:
    """Every operation in one line."""
    rows = [
        [f"[`{o.name}`](#{_anchor(o.name)})", f"`{o.method} {o.path}`", o.permission, o.summary]
        for o in OPERATIONS
    ]
    return table(["operation", "request", "permission", "what it does"], rows)


def operation_details() -> str:
    """What every operation takes and answers."""
    paths = openapi.document(OPERATIONS, SURFACES)["paths"]
    return "\n".join(_details(o, paths[o.path][o.method.lower()]) for o in OPERATIONS)


def role_table() -> str:
    """What each role is for, and what it may do by now."""
    rows = [
        [f"`{name}`", role.sentence, _listed(sorted(roles.granted(name))) or "nothing yet"]
        for name, role in roles.ROLES.items()
    ]
    return table(["role", "meant to", "may today"], rows)


def permission_table() -> str:
    """Every permission."""
    return table(
        ["permission", "allows to"],
        ([f"`{name}`", text] for name, text in roles.PERMISSIONS.items()),
    )


def limit_tables() -> str:
    """Every bound under the headings of `limits.py`, and the setting that changes it, if any."""
    rows: dict[str, list[list[str]]] = {}
    heading = ""
    for line in inspect.getsource(limits).splitlines():
        if line.startswith("# "):
            heading = line[2:]
        elif heading and (named := re.match(r"([A-Z_]+): Final = ", line)):
            rows.setdefault(heading, []).append(_limit_row(named[1]))
    return "\n".join(
        f"## {heading}\n\n{table(['bound', 'value', 'setting'], found)}"
        for heading, found in rows.items()
    )


def metric_table() -> str:
    """Every figure with its labels."""
    made, own = App(settings=Settings()).metrics, inspect.getsource(Metrics)
    attributes = {id(value): name for name, value in vars(made).items()}
    rows = []
    for figure in made.registry._collector_to_names:
        attribute = attributes.get(id(figure), "registry")
        within = (f"self.{attribute}.l", f"(self.{attribute}, ")  # set by what else is there
        used = re.search(rf"metrics\.{attribute}\b", _code()) or any(one in own for one in within)
        for family in figure.collect():
            name = f"{family.name}_total" if family.type == "counter" else family.name
            text = family.documentation if used else f"{family.documentation} Not measured yet."
            labelled: Any = figure if isinstance(figure, MetricWrapperBase) else family
            rows.append([f"`{name}`", family.type, _listed(labelled._labelnames), text])
    return table(["name", "type", "labels", "meaning"], rows)


def systemd_unit() -> str:
    """The unit of `deploy`."""
    unit = (ROOT / "deploy" / "systemd" / "relevo.service").read_text("utf-8")
    return f"```ini\n{unit}```\n"


def event_table() -> str:
    """Every event that is delivered, in one line."""
    rows = [
        [f"`{NAMES[one.name].rpartition('.')[2]}`", f"`{one.name}`", one.sentence]
        for one in TYPES
        if one.name in NAMES
    ]
    return table(["event", "in the log", "sent when"], rows)


def event_details() -> str:
    """What the data of every event has."""
    parts = []
    for one in TYPES:
        if one.name in NAMES:
            fields = inspect_fields(one.payload)
            shown = NAMES[one.name].rpartition(".")[2]
            parts.append(f"### {shown}\n\n{one.sentence}\n\n{table(EVENT_HEADINGS, fields)}")
    for kind in (SelectorData, QueueData, ChannelData, ErrorData):
        said = inspect.cleandoc(kind.__doc__ or "")
        fields = inspect_fields(kind)
        parts.append(f"### {kind.__name__}\n\n{said}\n\n{table(EVENT_HEADINGS, fields)}")
    return "\n".join(parts)


def inspect_fields(kind: type) -> list[list[str]]:
    """Return the fields of a struct under their names on the wire, with their types."""
    (schema,), components = msgspec.json.schema_components([kind], ref_template="{name}")
    properties = components[schema["$ref"]]
    needed = properties.get("required", ())
    return [
        [f"`{name}`", _schema(each).removesuffix(" or null"), _yes(name in needed)]
        for name, each in properties["properties"].items()
    ]


def layers() -> str:
    """The import contract as a picture: each level may import those to its right."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    levels = next(c["layers"] for c in told["contracts"] if c["type"] == "layers")
    names = [level.replace(" | ", " · ") for level in levels]
    return f"```text\n{' ──► '.join(names)}\n```\n"


def diagram(machine: Machine) -> str:
    """The states of something, drawn from the table that the code goes by."""
    return f"```mermaid\n{machine.mermaid()}```\n"


def message_event_data() -> str:
    """What the data of the events of messaging has."""
    return "\n".join(
        f"### {kind.__name__}\n\n{inspect.cleandoc(kind.__doc__ or '')}\n\n"
        f"{table(EVENT_HEADINGS, inspect_fields(kind))}"
        for kind in message_tables.PAYLOADS
    )


def part_table(name: str) -> str:
    """One of the tables of system jobs or of messaging."""
    return table(*(job_tables.TABLES | message_tables.TABLES)[name]())


PLACES: Final[dict[str, Callable[[], str]]] = {
    "settings": lambda: settings_table(with_types=False),
    "settings with types": lambda: settings_table(with_types=True),
    "error tree": error_tree,
    "errors": error_table,
    "problem": problem_table,
    "operations": operation_table,
    "operation details": operation_details,
    "roles": role_table,
    "permissions": permission_table,
    "limits": limit_tables,
    "metrics": metric_table,
    "systemd": systemd_unit,
    "layers": layers,
    "host states": lambda: diagram(HOST),
    "lease states": lambda: diagram(LEASE),
    "unit states": lambda: diagram(UNIT),
    "router job states": lambda: diagram(JOB),
    "job states": lambda: diagram(SYSTEM_JOB),
    "message states": lambda: diagram(message_states.MESSAGE),
    "message event data": message_event_data,
    "activation states": lambda: diagram(ACTIVATION),
    "actor events": lambda: table(
        ["event", "written when"],
        [[f"`{one.name}`", one.sentence] for one in actor_events.TYPES],
    ),
    "actor event data": lambda: table(EVENT_HEADINGS, inspect_fields(actor_events.ActorData)),
    "move states": lambda: diagram(MOVE),
    "governance events": lambda: table(
        ["event", "written when"],
        [[f"`{one.name}`", one.sentence] for one in governance_events.TYPES],
    ),
    "governance event data": lambda: table(
        EVENT_HEADINGS, inspect_fields(governance_events.GovernanceData)
    ),
    "message fields": lambda: table(*message_tables.fields(attribute_docs(MessageOptions))),
    **{
        name: functools.partial(part_table, name)
        for name in (*job_tables.TABLES, *message_tables.TABLES)
    },
    "webhook events": lambda: table(
        ["event", "written when"],
        [[f"`{one.name}`", one.sentence] for one in webhook_events.TYPES],
    ),
    "job event data": lambda: table(EVENT_HEADINGS, inspect_fields(job_events.JobData)),
    "router events": event_table,
    "router event details": event_details,
}


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, with a final newline."""
    lines = [headings, ["---"] * len(headings), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n".replace("|  |", "| |") for line in cells)


def attribute_docs(kind: type, prefix: str = "") -> dict[str, str]:
    """Return the sentences under a class's fields, by field."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, said in pairwise(body.body):
        if isinstance(field, ast.AnnAssign) and isinstance(said, ast.Expr):
            assert isinstance(field.target, ast.Name)
            found[prefix + field.target.id] = " ".join(ast.literal_eval(said.value).split())
    return found


def meaning(name: str, said: dict[str, str]) -> str:
    """Return what a field means: its docstring, else what is said here; never both."""
    assert not (name in said and name in SAID_HERE), f"{name} has a docstring: drop it from here"
    return said.get(name) or SAID_HERE[name]


def _details(operation: Operation, described: dict[str, Any]) -> str:
    fields = [
        [f"`{p['name']}`", p["in"], _schema(p["schema"]), _yes(p["required"]), p["description"]]
        for p in described["parameters"]
    ]
    if "requestBody" in described:
        body = described["requestBody"]["content"]["application/json"]["schema"]
        needed = body.get("required", ())
        fields += [
            [f"`{name}`", "body", _schema(schema), _yes(name in needed), _described(schema)]
            for name, schema in body.get("properties", {}).items()
        ]
        if operation.body is not None:
            fields.append(["(the body)", "body", _schema(body), "no", _described(body)])
    takes = table(["field", "in", "type", "required", "meaning"], fields) if fields else ""
    special = {str(one.status) for one in operation.outcomes}
    statuses = [code for code in described["responses"] if int(code) < 400 and code not in special]
    statuses += [f"{one.status} ({one.sentence.rstrip('.').lower()})" for one in operation.outcomes]
    answers = f"Answers {', '.join(statuses)}."
    if operation.errors:
        code = SURFACES.at(operation.path).code
        answers += f" May refuse with {_listed(code(kind) for kind in operation.errors)}."
    heading = f"### {operation.name}\n\n`{operation.method} {operation.path}`: {operation.summary}"
    return "\n\n".join(part.rstrip("\n") for part in (heading, takes, answers) if part) + "\n"


def _schema(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_schema(choice) for choice in schema["anyOf"])
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return " or ".join(f"`{choice}`" for choice in schema["enum"])
    if "prefixItems" in schema:
        return f"[{', '.join(_schema(each) for each in schema['prefixItems'])}]"
    if schema.get("type") == "array":
        return f"list of {_schema(schema['items'])}"
    text = str(schema.get("format") or schema.get("type", "any"))
    if "minimum" in schema and "maximum" in schema:
        text += f" {schema['minimum']} to {schema['maximum']}"
    if "maxLength" in schema:
        text += f", at most {schema['maxLength']} characters"
    return text


def _described(schema: dict[str, Any]) -> str:
    choices = [schema, schema.get("items", {}), *schema.get("anyOf", ())]
    return next((str(one["description"]) for one in choices if "description" in one), "")


def _below(kind: type[errors.RelevoError]) -> list[type[errors.RelevoError]]:
    return [below for child in _children(kind) for below in (child, *_below(child))]


def _children(kind: type[errors.RelevoError]) -> list[type[errors.RelevoError]]:
    """The classes whose place in the tree is below; the last base of a class is its place."""
    ours = (f"{errors.__name__}.", answers.__name__, job_errors.__name__)
    return [
        child
        for child in kind.__subclasses__()
        if child.__module__.startswith(ours) and child.__bases__[-1] is kind
    ]


def _limit_row(name: str) -> list[str]:
    value = getattr(limits, name)
    text = f"{value:,}"
    if "_BYTES" in name:
        sizes = (("MiB", limits.MIB), ("KiB", limits.KIB), ("bytes", 1))
        text = next(f"{value // size:,} {unit}" for unit, size in sizes if value % size == 0)
    elif "_SECONDS" in name and "_PER_" not in name:
        text = f"{value:g} s"
    setting = re.search(rf"(\w+): [^\n]*limits\.{name}\b", inspect.getsource(Settings))
    note = f"`{setting[1]}`" if setting else ""
    return [f"`{name}`", text, note if re.search(rf"\b{name}\b", _code()) else "not checked yet"]


@functools.cache
def _code() -> str:
    """All code of the product but the tables that the reference is made from."""
    files = sorted((ROOT / "src" / "relevo").rglob("*.py"))
    tables = ("limits.py", "metrics.py")
    return "\n".join(file.read_text("utf-8") for file in files if file.name not in tables)


def _default(name: str) -> str:
    match getattr(Settings(), name):
        case None | ():
            return "none"
        case bool(value):
            return f"`{str(value).lower()}`"
        case tuple(values):
            return ", ".join(f"`{value}`" for value in values)
        case value if name in SECONDS:
            return f"{value:g} s"
        case value:
            return f"`{value}`"


def _type_name(hint: Any) -> str:
    choices = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(f"`{choice}`" for choice in choices)
    if typing.get_origin(hint) is tuple:
        return "list of text"
    plain = next((one for one in choices if one is not type(None)), hint)
    if typing.get_origin(plain) is typing.Literal:
        return _type_name(plain)
    names = {Path: "path", str: "text", float: "number", int: "whole number", bool: "true or false"}
    return names[plain]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _anchor(heading: str) -> str:
    return heading.lower().replace(".", "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
