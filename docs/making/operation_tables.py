"""Tables of operations, roles and permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relevo.http import openapi
from relevo.http.access import roles
from relevo.http.operations import OPERATIONS, SURFACES

from .writing import listed, table, type_of, yes

if TYPE_CHECKING:
    from relevo.kernel.operation import Operation


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
        [f"`{name}`", role.sentence, listed(sorted(roles.granted(name))) or "nothing yet"]
        for name, role in roles.ROLES.items()
    ]
    return table(["role", "meant to", "may today"], rows)


def permission_table() -> str:
    """Every permission."""
    return table(
        ["permission", "allows to"],
        ([f"`{name}`", text] for name, text in roles.PERMISSIONS.items()),
    )


def _details(operation: Operation, described: dict[str, Any]) -> str:
    fields = [
        [f"`{p['name']}`", p["in"], type_of(p["schema"]), yes(p["required"]), p["description"]]
        for p in described["parameters"]
    ]
    if "requestBody" in described:
        body = described["requestBody"]["content"]["application/json"]["schema"]
        needed = body.get("required", ())
        fields += [
            [f"`{name}`", "body", type_of(schema), yes(name in needed), _described(schema)]
            for name, schema in body.get("properties", {}).items()
        ]
        if operation.body is not None:
            fields.append(["(the body)", "body", type_of(body), "no", _described(body)])
    takes = table(["field", "in", "type", "required", "meaning"], fields) if fields else ""
    special = {str(one.status) for one in operation.outcomes}
    statuses = [code for code in described["responses"] if int(code) < 400 and code not in special]
    statuses += [f"{one.status} ({one.sentence.rstrip('.').lower()})" for one in operation.outcomes]
    answers = f"Answers {', '.join(statuses)}."
    if operation.errors:
        code = SURFACES.at(operation.path).code
        answers += f" May refuse with {listed(code(kind) for kind in operation.errors)}."
    heading = f"### {operation.name}\n\n`{operation.method} {operation.path}`: {operation.summary}"
    return "\n\n".join(part.rstrip("\n") for part in (heading, takes, answers) if part) + "\n"


def _described(schema: dict[str, Any]) -> str:
    choices = [schema, schema.get("items", {}), *schema.get("anyOf", ())]
    return next((str(one["description"]) for one in choices if "description" in one), "")


def _anchor(heading: str) -> str:
    return heading.lower().replace(".", "")
