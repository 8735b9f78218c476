"""A call of an operation as a command line, as curl, and as Python: made from its declaration."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from relevo.http.request import request_of
from relevo.kernel.command_words import VIEWS, singular, words_of

if TYPE_CHECKING:
    from relevo.dashboard.page import Call
    from relevo.kernel.operation import Operation


class Snippets(Struct, frozen=True):
    """One call in three forms."""

    cli: str
    curl: str
    python: str


def snippets(called: Call, base: str) -> Snippets:
    """Return the forms of a call to the host at `base`."""
    target, body = request_of(called.operation, called.command)
    return Snippets(
        cli=_cli(called.operation, called.command),
        curl=_curl(called.operation.method, base + target, body),
        python=_python(called.operation.method, base + target, body),
    )


def _cli(operation: Operation, command: Any) -> str:
    words = ["relevo", *words_of(operation.name)]
    if operation.name.startswith(VIEWS):
        words.append(operation.name.removeprefix(VIEWS))
    options: list[str] = []
    for field in msgspec.structs.fields(operation.request):
        value = getattr(command, field.name)
        if field.encode_name in operation.parameters:
            words.append(shlex.quote(str(value)))
        elif value != field.default and value is not None:
            options += _option(field.name.replace("_", "-"), value)
    return " ".join([*words, *options])


def _option(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    if isinstance(value, tuple | list):
        return [text for each in value for text in (f"--{singular(name)}", _quoted(each))]
    return [f"--{name}", _quoted(value)]


def _quoted(value: Any) -> str:
    plain = msgspec.to_builtins(value)
    return shlex.quote(plain if isinstance(plain, str) else msgspec.json.encode(plain).decode())


def _curl(method: str, url: str, body: bytes) -> str:
    parts = ["curl", '-H "Authorization: Bearer $RELEVO_KEY"']
    if method != "GET":
        parts.append(f"-X {method}")
    if body:
        parts.append(f"-H 'Content-Type: application/json' -d {shlex.quote(body.decode())}")
    return " ".join([*parts, shlex.quote(url)])


def _python(method: str, url: str, body: bytes) -> str:
    lines = ["import json, os, urllib.request", "", "request = urllib.request.Request("]
    lines.append(f"    {url!r},")
    if method != "GET":
        lines.append(f"    method={method!r},")
    if body:
        lines.append(f"    data={body!r},")
    kind = ', "Content-Type": "application/json"' if body else ""
    bearer = '"Authorization": f"Bearer {os.environ[\'RELEVO_KEY\']}"'
    lines.append(f"    headers={{{bearer}{kind}}},")
    lines += [")", "print(json.load(urllib.request.urlopen(request)))"]
    return "\n".join(lines)
