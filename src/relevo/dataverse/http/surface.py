"""The Dataverse surface: errors, headers and addresses of its Web API."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import unquote

import msgspec
from msgspec import Meta, Struct, field

from relevo import errors, limits
from relevo.http.answers import JSON, SECURITY, Answer, Headers, Surface, detail, retry_after
from relevo.jobs.core import codes, series
from relevo.kernel.operation import OperationOptions
from relevo.kernel.querying import preferences
from relevo.kernel.querying.odata import options as odata_options
from relevo.kernel.querying.odata.options import Options

if TYPE_CHECKING:
    from relevo.http.request import Head
    from relevo.kernel.querying.preferences import Preferences

Version = Literal["v9.0", "v9.1", "v9.2"]
NEWEST: Final = "v9.2"
BASE: Final = "/api/data/{version}"
NAMESPACE: Final = "Microsoft.Dynamics.CRM"
HEADERS: Final = {"prefer": "Prefer"}
WEB_API: Final[OperationOptions] = {
    "headers": HEADERS,
    "url": "url",
    "fixed": {"version": NEWEST},
    "minds_reach": True,
}
"""Options that all operations of the surface share."""
_ORIGIN: Final = re.compile(r"https?://[^/]*")


class ODataError(Struct, frozen=True):
    """Code and message of an error."""

    code: str
    """A Dataverse error number such as `0x80040217`; stable, for programs."""
    message: str


class ODataErrorBody(Struct, frozen=True):
    """An error in the envelope of the Web API."""

    error: ODataError


CODES: Final[dict[type[errors.RelevoError], int]] = {
    errors.CallerError: codes.BAD_REQUEST,
    errors.Unauthenticated: codes.UNEXPECTED,
    errors.Forbidden: codes.FORBIDDEN,
    errors.NotFound: codes.NOT_FOUND,
    errors.Conflict: codes.STATE_CHANGED,
    errors.ConditionNotMet: codes.STALE_ETAG,
    errors.RateLimited: codes.THROTTLED,
    errors.RelevoError: codes.UNEXPECTED,
    errors.Unavailable: codes.BUSY,
    errors.OutcomeUnknown: codes.BUSY,
}
"""An error without a code of its own has the code of its nearest listed ancestor."""


class NotServed(errors.CallerError):
    """Relevo does not support this feature of Dataverse."""

    code = "not_served"
    status = 501
    error_code = codes.UNEXPECTED


class RequestRefused(errors.CallerError):
    """A request is refused with a specific Dataverse code."""

    code = "refused"

    def __init__(self, error_code: int, message: str, *, pointer: str | None = None) -> None:
        super().__init__(message, pointer=pointer)
        self.error_code = error_code


class Protected(RequestRefused, errors.Forbidden):
    """Clients cannot change this column."""

    code = "protected_column"
    status = 403


def code_of(kind: type[errors.RelevoError]) -> str:
    """Return the Dataverse code of an error class."""
    own = getattr(kind, "dataverse", None)
    if isinstance(own, str):
        return own
    number = getattr(kind, "error_code", None)
    if not isinstance(number, int):
        number = next(CODES[each] for each in kind.__mro__ if each in CODES)
    return codes.shown(number)


def code_in(error: errors.RelevoError) -> str:
    """Return the Dataverse code of an error."""
    if isinstance(error, errors.InvalidRecurrence):
        return codes.shown(series.code_of(error))
    own = getattr(error, "dataverse", None)
    number = getattr(error, "error_code", None)
    if isinstance(own, str):
        return own
    return codes.shown(number) if isinstance(number, int) else code_of(type(error))


def status_in(error: errors.RelevoError) -> int:
    """Return the HTTP status: 409 only if another process has changed the row."""
    moved = code_in(error) == codes.shown(codes.STATE_CHANGED)
    return 400 if isinstance(error, errors.Conflict) and not moved else error.status


def render(error: errors.RelevoError, _: str) -> Answer:
    """Return an error in the envelope of the Web API, without tracebacks and file names."""
    content = ODataErrorBody(ODataError(code_in(error), detail(error)))
    status = status_in(error)
    # 503 always has Retry-After, also if the outcome of the request is unknown.
    wait = retry_after(error) or (((b"retry-after", b"1"),) if status == 503 else ())
    return Answer(status, ((b"content-type", JSON), *wait), msgspec.json.encode(content))


def check(head: Head) -> None:
    """Refuse signed requests and batches."""
    scheme = (head.value(b"authorization") or b"").partition(b" ")[0]
    if scheme.lower() != b"bearer":
        raise errors.Unauthenticated(
            "send a key as `Authorization: Bearer <key>`; nothing else is accepted here"
        )
    if head.method == "POST" and head.segments[-1] == "$batch":
        raise NotServed("$batch is not supported; send the requests one by one")


def _headers(_: Head, request_id: str) -> Headers:
    return (
        (b"odata-version", b"4.0"),
        (b"x-ms-service-request-id", request_id.encode()),
        (b"x-request-id", request_id.encode()),
        *SECURITY,
    )


SURFACE: Final = Surface(
    segment="api",
    render=render,
    challenge=b"Bearer",
    strict=False,
    headers=_headers,
    check=check,
    url_bytes=limits.QUERY_URL_BYTES_MAX,
    body_bytes=limits.QUERY_BODY_BYTES_MAX,
    problem=ODataErrorBody,
    problem_type="application/json",
    code=code_of,
)

Prefer = Annotated[str, Meta(description="Preferences for the answer.")]


class WebApiRequest(Struct, frozen=True, kw_only=True):
    """Parameters of all requests."""

    version: Annotated[Version, Meta(description="The version of the Web API.")] = "v9.2"
    url: str = ""
    prefer: Prefer | None = None

    @property
    def base(self) -> str:
        """The base URL of the surface, as the client sees it."""
        origin = _ORIGIN.match(self.url)
        return f"{origin[0] if origin else ''}/api/data/{self.version}"

    @property
    def preferences(self) -> Preferences:
        """The preferences in the header `Prefer`."""
        return preferences.read(self.prefer)


def _option(name: str) -> Any:
    return field(default=None, name=name)


Select = Annotated[str, Meta(description="Properties, separated by commas.")]
Expand = Annotated[str, Meta(description="Related rows, with their options in parentheses.")]
Filter = Annotated[str, Meta(description="A condition on rows.")]
OrderBy = Annotated[str, Meta(description="The sort order.")]
Top = Annotated[str, Meta(description="The maximum number of rows, 1 to 5000.")]
Count = Annotated[str, Meta(description="`true` adds the number of rows.")]
Apply = Annotated[str, Meta(description="Groups and aggregates instead of rows.")]
SkipToken = Annotated[str, Meta(description="The token of a page, from the previous page.")]
FetchXml = Annotated[str, Meta(description="A FetchXML document instead of options.")]


class RowRequest(WebApiRequest, frozen=True, kw_only=True):
    """Parameters of requests that read a row."""

    select: Select | None = _option("$select")
    expand: Expand | None = _option("$expand")

    @property
    def options(self) -> Options:
        """The query options, from the URL or, without one, from the fields."""
        if self.url:
            return odata_options.read(self.url.partition("?")[2])
        names = {one.name: one.encode_name for one in msgspec.structs.fields(type(self))}
        given = {
            wire: value
            for name, wire in names.items()
            if wire.startswith("$") and (value := getattr(self, name)) is not None
        }
        document = getattr(self, "fetch_xml", None)
        return Options(given, {}, {"fetchXml": document} if document else {})


class RowsRequest(RowRequest, frozen=True, kw_only=True):
    """Parameters of requests that read many rows."""

    filter: Filter | None = _option("$filter")
    orderby: OrderBy | None = _option("$orderby")
    top: Top | None = _option("$top")
    count: Count | None = _option("$count")
    apply: Apply | None = _option("$apply")
    skiptoken: SkipToken | None = _option("$skiptoken")
    fetch_xml: FetchXml | None = _option("fetchXml")


def key_in(text: str, key: str) -> str:
    """Return the key in parentheses after a name: `(x)`, `('x')` or `(name=x)`."""
    name, sign, value = text.partition("=")
    if sign and name.strip() == key:
        text = value
    text = unquote(text).strip()
    if len(text) > 1 and text[0] == text[-1] == "'":
        text = text[1:-1].replace("''", "'")
    return text
