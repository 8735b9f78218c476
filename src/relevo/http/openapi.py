"""The OpenAPI 3.1 document of a table of operations."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import msgspec

from relevo import limits
from relevo.errors import (
    AnswerNotKept,
    EarlierOutcomeUnknown,
    Forbidden,
    IdempotencyKeyInUse,
    IdempotencyKeyReused,
    InternalError,
    InvalidValue,
    NotFound,
    Overloaded,
    RateLimited,
    RelevoError,
    TooLarge,
    Unauthenticated,
    UnsupportedMediaType,
)
from relevo.http.access.idempotency import REPLAYED
from relevo.http.answers import HeadersTooLarge, RequestTimeout, UrlTooLong, sentence
from relevo.kernel.operation import IDEMPOTENCY_KEY, PUBLIC, Operation, Text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from relevo.http.answers import Surface, Surfaces

Schema = dict[str, Any]

_ALWAYS: Final = (InvalidValue, RequestTimeout, UrlTooLong, InternalError, Overloaded)
_WITH_KEY: Final = (Unauthenticated, Forbidden, RateLimited)
_WITH_BODY: Final = (TooLarge, UnsupportedMediaType)

_WITH_IDEMPOTENCY_KEY: Final = (IdempotencyKeyInUse, AnswerNotKept, EarlierOutcomeUnknown)

_IDEMPOTENCY_KEY: Final = {
    "name": IDEMPOTENCY_KEY,
    "in": "header",
    "required": False,
    "description": (
        f"Names the request: a repeat within 24 hours does nothing and gets the first answer, with"
        f" `{REPLAYED}: true`. Use a new one for each request, such as a random UUID."
    ),
    "schema": {
        "type": "string",
        "minLength": 1,
        "maxLength": limits.IDEMPOTENCY_KEY_LENGTH_MAX,
        "pattern": "^[!-~]+$",
    },
}

_SECURITY: Final = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "An access key, sent as it is.",
    },
    "signature": {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "description": (
            "`HMAC-SHA256 SignedHeaders=x-ms-date;host;x-ms-content-sha256&Signature=<base64>`: the"
            " HMAC-SHA256, under a signing key, of method, target as sent, and the values of these"
            " headers joined by `;`, on three lines."
        ),
    },
}


def document(operations: Iterable[Operation], surfaces: Surfaces) -> Schema:
    """Return the document that describes the operations."""
    table = tuple(operations)
    schemas = _Schemas(table, surfaces)
    paths: dict[str, Schema] = {}
    for operation in table:
        item = paths.setdefault(operation.path, {})
        surface = surfaces.at(operation.path)
        item[operation.method.lower()] = _operation(operation, surface, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Relevo",
            "version": version("relevo"),
            "description": "Gets every piece of work to whoever should do it.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": schemas.components, "securitySchemes": _SECURITY},
    }


class _Schemas:
    """The schemas of all types in the table, under one roof."""

    def __init__(self, table: tuple[Operation, ...], surfaces: Surfaces) -> None:
        kinds: list[Any] = [surface.problem for surface in surfaces]
        for operation in table:
            kinds.append(operation.request)
            if operation.response not in (None, Text):
                kinds.append(operation.response)
        kinds = list(dict.fromkeys(kinds))
        refs, found = msgspec.json.schema_components(
            kinds, ref_template="#/components/schemas/{name}"
        )
        self._refs: dict[Any, Schema] = dict(zip(kinds, refs, strict=True))
        commands = {self.name(operation.request) for operation in table}
        self._commands = {name: found[name] for name in commands}
        self.components = {
            name: schema for name, schema in sorted(found.items()) if name not in commands
        }

    def name(self, kind: Any) -> str:
        ref: str = self._refs[kind]["$ref"]
        return ref.rpartition("/")[2]

    def ref(self, kind: Any) -> Schema:
        return self._refs[kind]

    def fields(self, operation: Operation) -> tuple[dict[str, Schema], frozenset[str]]:
        """Return the fields of a command by name, and which are required."""
        schema = self._commands[self.name(operation.request)]
        return schema.get("properties", {}), frozenset(schema.get("required", ()))


def _operation(operation: Operation, surface: Surface, schemas: _Schemas) -> Schema:
    public = operation.permission == PUBLIC
    described: Schema = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.name.rpartition(".")[0]],
        "parameters": _parameters(operation, schemas),
        "responses": _responses(operation, surface, schemas),
        "security": [] if public else [{"bearer": []}, {"signature": []}],
        "x-relevo-permission": operation.permission,
    }
    if operation.takes_body:
        described["requestBody"] = _body(operation, schemas)
    return described


def _parameters(operation: Operation, schemas: _Schemas) -> list[Schema]:
    fields, required = schemas.fields(operation)
    found = []
    for name, schema in fields.items():
        place = _place(operation, name)
        if place not in ("body", "url"):
            found.append(
                {
                    "name": operation.headers.get(name, name),
                    "in": place,
                    "required": place == "path" or name in required,
                    "description": _description(schema),
                    "schema": schema if place == "path" else _absent(schema),
                }
            )
    if operation.takes_key and not operation.knows_repeats:
        found.append(_IDEMPOTENCY_KEY)
    return found


def _place(operation: Operation, name: str) -> str:
    """Return where a field of a command travels."""
    if name == operation.url:
        return "url"
    if name in operation.parameters:
        return "path"
    if name in operation.headers:
        return "header"
    if name in operation.query:
        return "query"
    if name == operation.body or (operation.takes_body and operation.body is None):
        return "body"
    return "query"


def _absent(schema: Schema) -> Schema:
    """Return the schema of a query parameter: there is no way to say null but to leave it out."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    return choices[0] if len(choices) == 1 else schema


def _description(schema: Schema) -> str:
    text: str = schema.get("description") or _absent(schema).get("description", "")
    return text


def _body(operation: Operation, schemas: _Schemas) -> Schema:
    fields, required = schemas.fields(operation)
    if operation.body is not None:
        whole = fields[operation.body]
        if "contentEncoding" in whole:  # bytes, which are JSON all the same
            whole = {"type": "object", "description": _description(whole)}
        types = ("application/merge-patch+json", "application/json")
        taken = types if operation.method == "PATCH" else types[1:]
        return {"required": False, "content": {each: {"schema": whole} for each in taken}}
    inside = {n: schema for n, schema in fields.items() if _place(operation, n) == "body"}
    needed = sorted(required & inside.keys())
    schema: Schema = {"type": "object", "properties": inside, "additionalProperties": False}
    if needed:
        schema["required"] = needed
    return {"required": bool(needed), "content": {"application/json": {"schema": schema}}}


def _responses(operation: Operation, surface: Surface, schemas: _Schemas) -> dict[str, Schema]:
    content: Schema = {}
    if operation.response is Text:
        content = {"content": {"*/*": {}}}
    elif operation.response is not None:
        content = {"content": {"application/json": {"schema": schemas.ref(operation.response)}}}
    if operation.stream is not None:
        content["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    status = 204 if operation.response is None and operation.status == 200 else operation.status
    responses = {str(status): {"description": operation.summary, **content}}
    for outcome in operation.outcomes:
        responses[str(outcome.status)] = {"description": outcome.sentence, **content}
    for status, kinds in sorted(_errors(operation).items()):
        described = "; ".join(f"`{surface.code(kind)}`: {sentence(kind)}" for kind in kinds)
        answer = {surface.problem_type: {"schema": schemas.ref(surface.problem)}}
        if str(status) in responses:
            answer |= responses[str(status)].get("content", {})
            described = f"{responses[str(status)]['description']} {described}"
        responses[str(status)] = {"description": described, "content": answer}
    return responses


def _errors(operation: Operation) -> dict[int, list[type[RelevoError]]]:
    kinds: list[type[RelevoError]] = [*_ALWAYS, *operation.errors]
    if operation.permission != PUBLIC:
        kinds += _WITH_KEY
    if operation.takes_body:
        kinds += _WITH_BODY
    if operation.takes_key:
        kinds.append(IdempotencyKeyReused)
    if operation.takes_key and not operation.knows_repeats:
        kinds += _WITH_IDEMPOTENCY_KEY
    if operation.headers or operation.takes_key:
        kinds.append(HeadersTooLarge)
    if operation.parameters and NotFound not in kinds:
        kinds.append(NotFound)
    found: dict[int, list[type[RelevoError]]] = {}
    for kind in dict.fromkeys(kinds):
        found.setdefault(kind.status, []).append(kind)
    return found
