"""Pages and actions as declarations, and a visit to a page."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from relevo.errors import Forbidden, RelevoError
from relevo.http.access.authenticator import authorise, call
from relevo.http.answers import Answer
from relevo.http.operations import operation
from relevo.kernel.decoding import converted, refuse_unstorable
from relevo.kernel.operation import Operation

if TYPE_CHECKING:
    from relevo.dashboard.languages import Language
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

_PARAMETER: Final = re.compile(r"\{(\w+)\}")
Loader = Callable[["Visit"], Awaitable[dict[str, Any] | Answer]]
"""Returns the variables of a page's template, or a whole answer, such as a file."""


class Page(Struct, frozen=True, kw_only=True):
    """A page: its path, its data, and its place in the navigation."""

    name: str
    """Its template is `<area>/<name>.html`, its title the text `<name>.title`."""
    path: str
    load: Loader
    area: str
    """The folder of its template."""
    template: str = ""
    """Its template, if that has another name."""
    operation: str
    """What a visitor must be allowed to do to see the page."""
    group: str | None = None
    """The heading of the navigation under which it stands; None is a page of details."""
    under: str | None = None
    """The page of the navigation that a page of details belongs to."""
    live: bool = True
    """Whether it is sent again while it is open."""

    @property
    def method(self) -> str:
        """Pages are read."""
        return "GET"

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the path's variable parts."""
        return tuple(_PARAMETER.findall(self.path))


class Action(Struct, frozen=True, kw_only=True):
    """An operation that a button runs, once for each selected thing."""

    operation: str
    key: str = "id"
    """The field that names the thing; empty for an operation on nothing that is there."""
    then: str = ""
    """The path to go to afterwards, with fields of the response; else back."""
    among: str | None = None
    """The operation that does the same to all that match a query, page by page."""
    confirm: bool = False
    """Whether a page with a preview comes before."""
    danger: bool = False
    """Whether it cannot be undone."""
    secret: bool = False
    """Whether its answer has a secret, which a page shows this once."""


class Call(Struct, frozen=True):
    """A call of an operation, for "copy as"."""

    operation: Operation
    command: Any


class Visit:
    """One look at a page: who looks, at what, in which language."""

    def __init__(
        self,
        services: Services,
        principal: Principal,
        *,
        page: Page,
        parameters: Mapping[str, str],
        query: Mapping[str, list[str]],
        language: Language,
        prefix: str,
    ) -> None:
        self.services = services
        self.principal = principal
        self.page = page
        self.parameters = parameters
        self.query = query
        self.language = language
        self.prefix = prefix
        self.calls: list[Call] = []

    def one(self, name: str, default: str = "") -> str:
        """Return the first value of a field of the URL."""
        return self.query.get(name, [default])[0]

    def many(self, name: str) -> list[str]:
        """Return all values of a field of the URL."""
        return self.query.get(name, [])

    def may(self, name: str) -> bool:
        """Whether the visitor may call an operation, as far as is known without its command."""
        return allowed(self.principal, name)

    async def run(self, name: str, /, **fields: Any) -> Any:
        """Call an operation; empty fields are left out. Raises what the operation raises."""
        made = command_of(operation(name), fields)
        self.calls.append(made)
        return await call(made.operation, self.services, self.principal, made.command)

    def link(self, **changes: str | list[str] | None) -> str:
        """Return the URL of this page with other fields; None or an empty text removes one."""
        values: dict[str, list[str]] = {name: list(each) for name, each in self.query.items()}
        for name, value in changes.items():
            values[name] = value if isinstance(value, list) else [value] if value else []
        kept = {name: each for name, each in values.items() if any(each)}
        quoted = {name: quote(value, safe="") for name, value in self.parameters.items()}
        path = self.page.path.format_map(quoted)
        return f"{self.prefix}{path}" + (f"?{urlencode(kept, doseq=True)}" if kept else "")


def allowed(principal: Principal, name: str) -> bool:
    """Whether a principal may call an operation, as far as is known without its command."""
    try:
        authorise(principal, operation(name))
    except Forbidden:
        return False
    return True


def command_of(called: Operation, fields: Mapping[str, Any]) -> Call:
    """Return a call of an operation with these fields; raises `InvalidValue`."""
    given = {**called.fixed, **fields}
    values = {name: value for name, value in given.items() if value not in (None, "", [], ())}
    refuse_unstorable(values, "")
    known = {field.encode_name for field in msgspec.structs.fields(called.request)}
    assert values.keys() <= known, f"{called.name} has no {values.keys() - known}"
    return Call(called, converted(values, called.request, strict=False))


def message_of(error: RelevoError) -> str:
    """Return what a visitor reads about an error."""
    from relevo.http.answers import detail

    return detail(error)
