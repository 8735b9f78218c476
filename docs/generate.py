"""Writes the reference pages, and the README's table of settings, from the code.

    python docs/generate.py            write what has changed
    python docs/generate.py --check    only name what is out of date; exits with 1 if anything is

`tests/docs` runs the check, so that a page cannot differ from what the program does.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import Histogram

from relevo import errors, limits
from relevo.api import openapi, problem, roles
from relevo.api.contract import PUBLIC
from relevo.api.operations import OPERATIONS
from relevo.leases.model import LeaseConfig
from relevo.settings import PREFIX, SECRETS, Settings
from relevo.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

ROOT: Final = Path(__file__).resolve().parent.parent
REFERENCE: Final = ROOT / "docs" / "reference"
README: Final = ROOT / "README.md"
README_TABLE: Final = re.compile(r"(?<=<!-- settings -->\n).*?(?=<!-- /settings -->)", re.DOTALL)

UNSAID: Final = {
    "pool_size": "Connections to the database at most; the heartbeat and wake-ups have their own.",
    "host": "Address on which the HTTP API listens.",
    "port": "Port on which the HTTP API listens; 0 takes a free one.",
    "signature_skew": "How far the date of a signed request may be from the server's time.",
    "requests_per_second": "Requests of one key per host; a burst is two seconds' worth.",
    "log_format": "`auto` is `console` on a terminal and `json` elsewhere.",
    "log_level": "What is logged to standard error.",
}
"""Settings whose name says it all in the code; a docstring there takes over and ends the entry."""

SECONDS: Final = {
    "signature_skew",
    "drain_seconds",
    "lease_expiration",
    "lease_renew",
    "lease_acquire",
}


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or say which are out of date."""
    stale = [path for path, text in pages().items() if _read(path) != text]
    if "--check" in arguments:
        for path in stale:
            sys.stderr.write(f"{path.relative_to(ROOT)} is out of date; run docs/generate.py\n")
        return int(bool(stale))
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(pages()[path], "utf-8")
    return 0


def pages() -> dict[Path, str]:
    """Return every generated file and what it should hold."""
    made: dict[str, tuple[str, Callable[[], str]]] = {
        "settings": ("src/relevo/settings.py", settings_page),
        "errors": ("src/relevo/errors.py and src/relevo/api/problem.py", errors_page),
        "operations": ("src/relevo/api/operations.py and roles.py", operations_page),
        "limits": ("src/relevo/limits.py", limits_page),
        "metrics": ("src/relevo/telemetry/metrics.py", metrics_page),
    }
    found = {
        REFERENCE / f"{name}.md": f"<!-- Written by docs/generate.py from {source}. -->\n\n{make()}"
        for name, (source, make) in made.items()
    }
    table = settings_table(short=True)
    return found | {README: README_TABLE.sub(lambda _: table, _read(README))}


def settings_page() -> str:
    """Every setting, its variable, its default and its meaning."""
    return f"""# Settings

A setting is given as an argument (`relevo.App(port=9000)`, or an option of the command line), as an
environment variable, or in `relevo.toml` (another file: `RELEVO_CONFIG`). Arguments win over the
environment, the environment over the file, the file over the default. An unknown key is refused with
the closest known one, so that a typo never means the default. In the file the keys stand at the top
level. `relevo.Settings` is the struct; `relevo.settings.load` reads it.

{settings_table(short=False)}
Each secret ({_listed(sorted(SECRETS))}) can also be read from a file: `RELEVO_DATABASE_URL_FILE` and
so on name it. `public_hosts` is a list in the file and separated by commas in the environment. Secrets
are never shown: `repr` of the settings prints `…` in their place.

When root starts the embedded server, `RELEVO_POSTGRES_ACCOUNT` names the unprivileged account it runs
under (default `relevo-postgres`). Tests use `RELEVO_TEST_DATABASE_URL`; see
[Test your code](../how-to/test-your-code.md).
"""


def settings_table(*, short: bool) -> str:
    """The settings as a table; `short` leaves out the types."""
    said = attribute_docs(Settings)
    leases = attribute_docs(LeaseConfig)
    hints = typing.get_type_hints(Settings)
    rows = []
    for name in Settings.__struct_fields__:
        text = said.get(name) or leases.get(name.removeprefix("lease_")) or UNSAID[name]
        assert name not in UNSAID or name not in said, f"{name} has a docstring; drop it from UNSAID"
        rows.append(
            [
                f"`{name}`",
                f"`{PREFIX}{name.upper()}`",
                *([] if short else [_type_name(hints[name])]),
                _setting_value(name, getattr(Settings(), name)),
                text,
            ]
        )
    headings = ["setting", "environment", *([] if short else ["type"]), "default", "meaning"]
    return table(headings, rows)


def errors_page() -> str:
    """The tree of errors and what each means for a caller."""
    assert errors.__doc__ is not None
    tree = errors.__doc__.split("\n\n")[1]
    rows = [
        [
            f"`{kind.__name__}`",
            f"`{kind.code}`",
            str(kind.status),
            kind.fault,
            "yes" if kind.retryable else "no",
            problem.sentence(kind),
        ]
        for kind in _tree(errors.RelevoError)
        if kind not in (errors.RelevoError, errors.SystemFault)
    ]
    return f"""# Errors

Everything Relevo raises is a `relevo.RelevoError`. Its message says what happened, with which value,
and what to do next. `code` is stable and meant for programs. `status` is what HTTP answers. `fault` says
who can do something about it. `retryable` says whether the same call may be sent again safely and with
hope; [Failure and outcomes](../explanation/failure-and-outcomes.md) says what that means.

```text
{textwrap.dedent(tree)}
```

{table(["class", "code", "status", "fault", "retryable", "meaning"], rows)}
## Over HTTP

An error is an RFC 9457 problem (`application/problem+json`):

{table(["field", "meaning"], [[f"`{name}`", _problem_field(name)] for name in _problem_fields()])}
The words of a system fault may name addresses, tables or values of others. They go to the log of the
host; the caller gets the meaning of the class. `instance` is in both. A retryable error carries
`Retry-After` in whole seconds where Relevo knows it. Paths under `/routing/` use the error envelope of
the job router's ancestor instead.
"""


def operations_page() -> str:
    """The table of operations, what each takes, and who may call it."""
    described = openapi.document(OPERATIONS)
    overview = table(
        ["operation", "request", "permission", "what it does"],
        (
            [f"[`{o.name}`](#{_anchor(o.name)})", f"`{o.method} {o.path}`", f"`{o.permission}`", o.summary]
            for o in OPERATIONS
        ),
    )
    details = "\n".join(
        _operation_section(o, described["paths"][o.path][o.method.lower()]) for o in OPERATIONS
    )
    granted = [
        [f"`{name}`", role.sentence, _listed(sorted(roles.granted(name))) or "nothing yet"]
        for name, role in roles.ROLES.items()
    ]
    permissions = [[f"`{name}`", text] for name, text in roles.PERMISSIONS.items()]
    return f"""# Operations

Everything that can be asked of a host over HTTP. The same table makes the routes, the OpenAPI document
(`GET /openapi.json`), the authorisation and the commands of the CLI. `{PUBLIC}` needs no key; every other
permission comes from a role of the key. Errors are listed in [Errors](errors.md), bounds in
[Limits](limits.md).

{overview}
## Roles

Deny by default: what is not listed is not allowed.

{table(["role", "meant to", "may today"], granted)}
{table(["permission", "allows to"], permissions)}
A key may also have scopes, patterns of the resources it may touch. A key with scopes reaches only
operations that name their resource, and none of today's operations does.

{details}"""


def limits_page() -> str:
    """Every bound, and the setting that changes it if there is one."""
    source = inspect.getsource(limits)
    used = inspect.getsource(Settings)
    sections: list[str] = []
    rows: list[list[str]] = []
    for line in [*source.splitlines(), "# end"]:
        if line.startswith("# "):
            if rows:
                sections.append(table(["bound", "value", "setting"], rows))
            rows = []
            sections.append(f"## {line[2:]}\n")
        elif named := re.match(r"([A-Z_]+): Final = ", line):
            name = named[1]
            setting = re.search(rf"(\w+): [^\n]*limits\.{name}\b", used)
            if name not in ("KIB", "MIB"):
                rows.append([f"`{name}`", _bound(name), f"`{setting[1]}`" if setting else ""])
    body = "\n".join(sections[:-1])
    return f"""# Limits

Everything has a bound. These are the constants of `relevo.limits`; a few are defaults of a
[setting](settings.md). What exceeds a bound is refused with an error that names it, never cut short.

{body}"""


def metrics_page() -> str:
    """Every figure of `/metrics`."""
    made = Metrics()
    figures = [each for each in vars(made).values() if hasattr(each, "describe") and each is not made.registry]
    rows = []
    for figure in figures:
        family = figure.describe()[0]
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = _listed(figure._labelnames)
        rows.append([f"`{name}`", family.type, labels, family.documentation])
    buckets = ", ".join(f"{bound:g}" for bound in _bounds_of(made.store_commit_seconds))
    return f"""# Metrics

`GET /metrics` answers in the text format of Prometheus; it needs a key with the permission
`metrics:read`. In Python, `app.measure()` returns the same bytes. Each app has its own registry. Labels
never hold ids or arguments.

{table(["name", "type", "labels", "meaning"], rows)}
Histograms also have `_bucket`, `_sum` and `_count`; their bounds are {buckets} s.
"""


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, with a final newline."""
    lines = [headings, ["---"] * len(headings), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n".replace("|  |", "| |") for line in cells)


def attribute_docs(kind: type) -> dict[str, str]:
    """Return the sentences under a class's fields, by field."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, said in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(said, ast.Expr):
            assert isinstance(field.target, ast.Name)
            assert isinstance(said.value, ast.Constant)
            found[field.target.id] = " ".join(str(said.value.value).split())
    return found


def _operation_section(operation: Any, described: dict[str, Any]) -> str:
    fields = [
        [f"`{p['name']}`", p["in"], _schema(p["schema"]), "yes" if p["required"] else "no", p["description"]]
        for p in described["parameters"]
    ]
    body = described.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    for name, schema in body.get("properties", {}).items():
        needed = "yes" if name in body.get("required", ()) else "no"
        fields.append([f"`{name}`", "body", _schema(schema), needed, _said(schema)])
    takes = table(["field", "in", "type", "required", "meaning"], fields) if fields else ""
    usual = [code for code in described["responses"] if int(code) < 400]
    others = [f"{outcome.status} ({outcome.sentence.rstrip('.').lower()})" for outcome in operation.outcomes]
    errors_of = [f"`{kind.code}`" for kind in operation.errors]
    answers = f"Answers {', '.join(usual + others)}."
    if errors_of:
        answers += f" May refuse with {', '.join(errors_of)}."
    heading = f"### {operation.name}\n\n`{operation.method} {operation.path}`: {operation.summary}"
    return "\n\n".join(part.rstrip("\n") for part in (heading, takes, answers) if part) + "\n"


def _schema(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_schema(choice) for choice in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"`{choice}`" for choice in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_schema(schema['items'])}"
    text = str(schema.get("format") or schema.get("type", "any"))
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        text += f" {low} to {high}"
    if "maxLength" in schema:
        text += f", at most {schema['maxLength']} characters"
    return text


def _said(schema: dict[str, Any]) -> str:
    choices = [schema, schema.get("items", {}), *schema.get("anyOf", ())]
    return next((str(one["description"]) for one in choices if "description" in one), "")


def _tree(kind: type[errors.RelevoError]) -> list[type[errors.RelevoError]]:
    found = [kind]
    for child in kind.__subclasses__():
        if child.__module__ in (errors.__name__, problem.__name__):
            found += _tree(child)
    return found


def _problem_fields() -> tuple[str, ...]:
    return problem.Problem.__struct_fields__


def _problem_field(name: str) -> str:
    plain = {"title": "What the class of the error means.", "status": "The HTTP status.",
             "detail": "What happened, with which value, and what to do next."}  # fmt: skip
    return attribute_docs(problem.Problem).get(name) or plain[name]


def _bound(name: str) -> str:
    value = getattr(limits, name)
    if "_BYTES" in name:
        for unit, size in (("MiB", limits.MIB), ("KiB", limits.KIB)):
            if value % size == 0:
                return f"{value // size} {unit}"
        return f"{value:,} bytes"
    return f"{value:g} s" if name.endswith(("_SECONDS", "_SECONDS_MAX")) else f"{value:,}"


def _bounds_of(histogram: Histogram) -> list[float]:
    return [bound for bound in histogram._upper_bounds if bound != float("inf")]


def _setting_value(name: str, value: object) -> str:
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, float):
        return f"{value:g} s" if name in SECONDS else f"{value:g}"
    return f"`{value}`"


def _type_name(hint: Any) -> str:
    text = str(hint) if typing.get_origin(hint) or "|" in str(hint) else hint.__name__
    for part, plain in (("typing.", ""), ("tuple[str, ...]", "list of text"), (" | None", ""),
                        ("Path", "path"), ("str", "text"), ("float", "number"), ("int", "whole number"),
                        ("bool", "true or false")):  # fmt: skip
        text = text.replace(part, plain)
    literal = re.fullmatch(r"Literal\[(.+)\]", text)
    return " or ".join(f"`{v}`" for v in re.findall(r"'(\w+)'", literal[1])) if literal else text


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _anchor(heading: str) -> str:
    return heading.lower().replace(".", "")


def _read(path: Path) -> str:
    return path.read_text("utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
