"""The table itself, and who may do what according to it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from msgspec import Struct

from relevo.errors import Forbidden, RelevoError
from relevo.http.access import roles
from relevo.http.access.authenticator import ANONYMOUS, LOCAL_ADMIN, Principal, authorise, call
from relevo.http.operations import OPERATIONS, SURFACES, operation
from relevo.http.routes import Routes
from relevo.kernel.operation import PUBLIC, Operation, Operations, Reply, Versioned

# Written out by hand: a change of what a role may do has to be made twice, on purpose.
VIEWER = {
    "actors:read", "audit:read", "containers:read", "events:read", "feeds:read",
    "governance:read", "health:read", "history:read", "hosts:read", "jobs:read", "leases:read",
    "metrics:read", "queues:read", "router:read", "settings:read", "webhooks:read", "workers:read",
}  # fmt: skip
MAY = {
    "admin": set(roles.PERMISSIONS),
    "consumer": {"containers:read", "feeds:read", "items:read"},
    "operator": VIEWER
    | {
        "actors:manage", "feeds:manage", "governance:manage", "hosts:drain", "jobs:delete",
        "jobs:write", "leases:move", "leases:pause", "queues:manage",
        "webhooks:manage",
    },
    "producer": {"actors:call", "governance:use", "items:write", "jobs:submit", "messages:send"},
    "reader": {"jobs:read", "router:read", "workers:read"},
    "router": {"router:read", "router:work", "workers:read", "offers:answer"},
    "supervisor": VIEWER | {"router:manage", "router:work", "offers:answer"},
    "viewer": VIEWER,
    "worker": {"governance:use", "messages:receive", "offers:answer", "workers:read"},
}  # fmt: skip


def of(*names: str, scopes: tuple[str, ...] = ()) -> Principal:
    return Principal(id="k", name="k", permissions=roles.permissions_of(names), scopes=scopes)


def test_every_operation_is_complete() -> None:
    Routes(OPERATIONS)
    for each in OPERATIONS:
        assert each.name.count(".") in (1, 2, 3)  # part, sub-queues, verb
        assert each.permission == PUBLIC or each.permission in roles.PERMISSIONS, each.name
        assert inspect.iscoroutinefunction(each.handler), each.name
        assert inspect.getdoc(each.handler), each.name
        assert all(issubclass(kind, RelevoError) for kind in each.errors), each.name
        assert operation(each.name) is each


def test_only_probes_the_description_and_confirmations_are_public() -> None:
    public = {each.path for each in OPERATIONS if each.permission == PUBLIC}
    # Receivers in Event Grid's form confirm a webhook by the secret code in its validation event.
    confirmation = "/v1/webhooks/{name}:validate"
    assert public == {"/livez", "/readyz", "/openapi.json", confirmation}


def test_every_permission_is_needed_by_an_operation() -> None:
    of_data = {"pipeline:bypass"}  # of data operations, whatever carries them
    assert {each.permission for each in OPERATIONS} - {PUBLIC} == set(roles.PERMISSIONS) - of_data


@pytest.mark.parametrize("role", roles.ROLES)
@pytest.mark.parametrize("each", OPERATIONS, ids=lambda each: each.name)
def test_role_and_operation(role: str, each: Operation) -> None:
    """Promise 17: every cell of operation x role is as the table says."""
    if each.permission == PUBLIC or each.permission in MAY[role]:
        authorise(of(role), each)
    else:
        with pytest.raises(Forbidden, match=each.permission):
            authorise(of(role), each)


def test_roles_add_up() -> None:
    assert roles.permissions_of(("viewer", "admin")) == set(roles.PERMISSIONS)
    assert roles.permissions_of(()) == frozenset()


@pytest.mark.parametrize("role", ["", "root", "Admin", "*", "admin "])
def test_an_unknown_role_grants_nothing(role: str) -> None:
    assert roles.permissions_of((role,)) == frozenset()


def test_nobody_is_let_in_without_a_key() -> None:
    for each in OPERATIONS:
        if each.permission != PUBLIC:
            with pytest.raises(Forbidden):
                authorise(ANONYMOUS, each)


class Send(Struct, frozen=True):
    queue: str


def scoped(permission: str, scope: str | None) -> Operation:
    async def handler(*_: Any) -> str:
        return "done"

    return Operation(
        name="queues.send",
        method="POST",
        path="/v1/queues/{queue}",
        summary="Test.",
        request=Send,
        response=None,
        permission=permission,
        handler=handler,
        scope=scope,
    )


def test_an_unknown_permission_belongs_to_nobody() -> None:
    forged = Principal(id="k", name="k", permissions=frozenset({"queues:send"}))
    with pytest.raises(Forbidden):
        authorise(forged, scoped("queues:send", None))
    with pytest.raises(Forbidden):
        authorise(LOCAL_ADMIN, scoped("queues:send", None))


def test_scopes_limit_a_key_to_its_resources() -> None:
    inside, outside = Send(queue="mail-1"), Send(queue="pay")
    each = scoped("hosts:read", "queue:{queue}")
    key = of("admin", scopes=("queue:mail-*", "topic:*"))
    authorise(key, each)
    authorise(key, each, inside)
    with pytest.raises(Forbidden, match="queue:pay"):
        authorise(key, each, outside)
    authorise(of("admin"), each, outside)
    with pytest.raises(Forbidden, match="not bound to one resource"):
        authorise(key, scoped("hosts:read", None), inside)


@pytest.mark.anyio
async def test_calling_an_operation_authorises_it() -> None:
    services: Any = None
    each = scoped("hosts:read", "queue:{queue}")
    assert await call(each, services, LOCAL_ADMIN, Send(queue="x")) == "done"
    with pytest.raises(Forbidden):
        await call(each, services, of("admin", scopes=("queue:y",)), Send(queue="x"))
    with pytest.raises(Forbidden):
        await call(each, services, of("producer"), Send(queue="x"))


@pytest.mark.parametrize(
    "change",
    [{"path": "/v1/{nope}"}, {"scope": "queue:{nope}"}, {"permission": ""}, {"path": "v1"}],
)
def test_a_broken_line_of_the_table_is_noticed_when_it_is_written(change: dict[str, str]) -> None:
    line: dict[str, Any] = {
        "name": "x.y",
        "method": "GET",
        "path": "/v1/{queue}",
        "summary": "Test.",
        "request": Send,
        "response": None,
        "permission": PUBLIC,
        "handler": authorise,
    }
    Operation(**line)
    with pytest.raises(AssertionError):
        Operation(**line | change)


def test_surfaces_go_by_the_decoded_first_segment() -> None:
    from relevo.http.request import head_of

    def segment(path: bytes) -> str:
        return SURFACES.of(head_of({"method": "GET", "raw_path": path, "headers": ()})).segment

    assert (
        segment(b"/routing/jobs/1") == segment(b"/routing") == segment(b"/%72outing/x") == "routing"
    )
    assert segment(b"/routingx") == segment(b"/v1/keys") == segment(b"/") == segment(b"*") == ""
    assert segment(b"/routing/%ff") == "routing"


async def send(services: NotThere, _: NotThere, command: Send) -> Versioned[int]:  # type: ignore[name-defined]  # noqa: F821
    """Send a message.

    What follows the first line is for those who read the code.
    """
    raise NotImplementedError


async def drop(services: Any, _: Any, command: Send) -> None:
    """Drop a queue."""


async def reply(services: Any, _: Any, command: Send) -> Reply:
    """Say anything."""
    return Reply()


def test_a_handler_says_its_types_and_summary_itself() -> None:
    declared = Operations(scope="queue:{queue}", status=202)
    assert declared("queues.send", "POST /v1/queues/{queue}:send", "x", status=201)(send) is send
    declared("queues.drop", "DELETE /v1/queues/{queue}", "x", scope=None)(drop)
    first, second = declared
    assert (first.request, first.response, first.summary) == (Send, int, "Send a message.")
    assert (first.method, first.path) == ("POST", "/v1/queues/{queue}:send")
    assert (first.scope, first.status) == ("queue:{queue}", 201)
    assert (second.request, second.response, second.summary) == (Send, None, "Drop a queue.")
    assert (second.scope, second.status) == (None, 202)


def test_a_declaration_that_says_too_little_is_refused() -> None:
    declare = Operations()
    with pytest.raises(AssertionError, match="say `response=`"):
        declare("queues.ask", "POST /v1/queues/{queue}", "x")(reply)
    with pytest.raises(AssertionError, match="begins with no method"):
        declare("queues.drop", "/v1/queues/{queue}", "x")(drop)
    declare("queues.ask", "POST /v1/queues/{queue}", "x", response=dict[str, Any])(reply)
    (only,) = declare
    assert only.response == dict[str, Any]
