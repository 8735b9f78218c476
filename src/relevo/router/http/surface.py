"""The `/routing` surface: Azure's errors, lists, headers and common request fields."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, Literal, TypeVar, get_args
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import msgspec
from msgspec import Meta, Struct, field

from relevo import errors, limits
from relevo.http.answers import JSON, SECURITY, Answer, Headers, Surface, detail, retry_after
from relevo.http.paging import Cursor, Page
from relevo.http.request import origin
from relevo.kernel.operation import OperationOptions, OtherStatus
from relevo.router.commands import Conditions, http_date

if TYPE_CHECKING:
    from collections.abc import Iterable

    from relevo.http.request import Head

T = TypeVar("T")
Version = Literal["2023-11-01", "2024-01-18-preview"]
PREVIEW: Final = "2024-01-18-preview"
VERSIONS: Final = ", ".join(get_args(Version)).encode()
CONTINUATION: Final = "continuation"
"""The argument of the query that says where a list goes on."""
_ID: Final = re.compile(rb"[!-~]{1,128}")


class RoutingErrorDetail(Struct, frozen=True, omit_defaults=True):
    """An error, in the form of Azure's job router."""

    code: str
    """Stable and meant for programs."""
    message: str
    target: str | None = None
    """Where in the request the fault lies: a JSON pointer, or the name of a header."""


class RoutingErrorEnvelope(Struct, frozen=True):
    """The envelope of an error, in the form of Azure's job router."""

    error: RoutingErrorDetail


class Listing(Struct, Generic[T], frozen=True, rename="camel", omit_defaults=True):
    """One page of a list."""

    value: list[T]
    next_link: str | None = None
    """The address of the following page; absent on the last one."""


CODES: Final[dict[type[errors.RelevoError], str]] = {
    errors.CallerError: "BadRequest",
    errors.InvalidValue: "InvalidValue",
    errors.InvalidJson: "InvalidJson",
    errors.MissingField: "MissingField",
    errors.ReferenceNotFound: "ReferenceNotFound",
    errors.InvalidExpression: "InvalidExpression",
    errors.MissingApiVersion: "MissingApiVersionParameter",
    errors.UnsupportedApiVersion: "UnsupportedApiVersionValue",
    errors.Unauthenticated: "Denied",
    errors.Forbidden: "Forbidden",
    errors.NotFound: "NotFound",
    errors.MethodNotAllowed: "MethodNotAllowed",
    errors.Conflict: "Conflict",
    errors.InvalidState: "InvalidState",
    errors.InUse: "InUse",
    errors.OfferGone: "OfferGone",
    errors.UnassignLimitReached: "UnassignLimitReached",
    errors.ConditionNotMet: "ConditionNotMet",
    errors.TooLarge: "RequestTooLarge",
    errors.UnsupportedMediaType: "UnsupportedMediaType",
    errors.RateLimited: "ThrottleLimitExceeded",
    errors.RelevoError: "InternalError",
    errors.Unavailable: "ServiceUnavailable",
    errors.OutcomeUnknown: "ServiceUnavailable",
}
"""Azure's error codes; an error that is not listed has that of its nearest listed base."""


def code_of(kind: type[errors.RelevoError]) -> str:
    """Return Azure's code for a class of errors."""
    return next(CODES[each] for each in kind.__mro__ if each in CODES)


def render(error: errors.RelevoError, _: str) -> Answer:
    """Return an error in Azure's envelope."""
    code = code_of(type(error))
    content = RoutingErrorEnvelope(RoutingErrorDetail(code, detail(error), error.pointer or None))
    headers = ((b"content-type", JSON), (b"x-ms-error-code", code.encode()), *retry_after(error))
    return Answer(error.status, headers, msgspec.json.encode(content))


def check_version(head: Head) -> None:
    """Refuse a request without a supported `api-version`."""
    asked = parse_qs(head.query.decode("latin-1"), keep_blank_values=True).get("api-version", [])
    supported = VERSIONS.decode()
    if not asked or not asked[-1]:
        raise errors.MissingApiVersion(
            f"the query needs api-version; supported are {supported}", pointer="api-version"
        )
    if asked[-1] not in get_args(Version):
        raise errors.UnsupportedApiVersion(
            f"api-version {asked[-1][:40]!r} is not supported; use one of {supported}",
            pointer="api-version",
        )


def listing(head: Head, page: Page[Any]) -> Listing[Any]:
    """Return a page in Azure's form, with an absolute address for the next one.

    The address has the host that the client used, because the client signs that host.
    """
    if page.next is None:
        return Listing(page.items)
    arguments = [
        (name, value)
        for name, value in parse_qsl(head.query.decode("latin-1"))
        if name != CONTINUATION
    ]
    query = urlencode([*arguments, (CONTINUATION, page.next)])
    path = head.target.partition(b"?")[0].decode("latin-1")
    return Listing(page.items, f"{origin(head)}{path}?{query}")


def one_of(text: str, names: Iterable[str], argument: str) -> str:
    """Return the name that equals a text except for its letter case."""
    known = {name.casefold(): name for name in names}
    found = known.get(text.casefold())
    if found is None:
        raise errors.InvalidValue(
            f"{argument} is one of {', '.join(known.values())}, not {text[:40]!r}",
            pointer=f"/{argument}",
        )
    return found


def page_of(listed: Listing[T]) -> Page[T]:
    """Return a list in Azure's form as a page; for clients."""
    query = parse_qs(urlsplit(listed.next_link or "").query)
    return Page(listed.value, query.get(CONTINUATION, [None])[0])


def _headers(head: Head, request_id: str) -> Headers:
    ours: Headers = (
        (b"x-ms-request-id", request_id.encode()),
        (b"x-request-id", request_id.encode()),
        (b"api-supported-versions", VERSIONS),
        *SECURITY,
    )
    theirs = head.value(b"x-ms-client-request-id") or b""
    wanted = head.value(b"x-ms-return-client-request-id") or b""
    if wanted.lower() != b"true" or not _ID.fullmatch(theirs):
        return ours
    return (*ours, (b"x-ms-client-request-id", theirs))


SURFACE: Final = Surface(
    segment="routing",
    render=render,
    challenge=b"HMAC-SHA256",
    strict=False,
    headers=_headers,
    check=check_version,
    page=listing,
    problem=RoutingErrorEnvelope,
    problem_type="application/json",
    code=code_of,
)

ResourceId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=limits.ROUTER_ID_LENGTH_MAX,
        description="Chosen by the caller; any characters but control characters.",
    ),
]
ApiVersion = Annotated[Version, Meta(description="The version of the API that the caller speaks.")]
FIXED: Final = {"api-version": "2023-11-01"}
CONDITIONS: Final = {
    "if_match": "If-Match",
    "if_none_match": "If-None-Match",
    "if_unmodified_since": "If-Unmodified-Since",
}
MERGE_PATCH: Final[OperationOptions] = {
    "outcomes": (OtherStatus(201, lambda answer: answer.created, "It was created."),),
    "headers": CONDITIONS,
    "body": "patch",
}
"""Options that all merge-patch operations share."""


class _Request(Struct, frozen=True, kw_only=True):
    api_version: ApiVersion = field(name="api-version")


class ListResources(_Request, frozen=True, kw_only=True):
    """Which page."""

    limit: Annotated[
        int, Meta(ge=1, description="The largest number of items to return; up to 1000 are.")
    ] = field(name="maxpagesize", default=limits.PAGE_ROWS_DEFAULT)
    cursor: Cursor | None = field(name=CONTINUATION, default=None)


class ListPlace(Struct, frozen=True, array_like=True):
    """The position where a page ended."""

    number: Annotated[int, Meta(ge=0, le=2**63 - 1)]


class ById(_Request, frozen=True, kw_only=True):
    """Which resource."""

    id: ResourceId


class PatchResource(ById, frozen=True, kw_only=True):
    """A merge patch of a resource, and its conditions."""

    patch: Annotated[
        bytes,
        Meta(description="What is to change, as JSON: null takes a value away, arrays are whole."),
    ]
    if_match: (
        Annotated[str, Meta(description="Only if its tag is this one; `*`: only if it is there.")]
        | None
    ) = None
    if_none_match: (
        Annotated[str, Meta(description="Only if its tag is another; `*`: only if it is missing.")]
        | None
    ) = None
    if_unmodified_since: (
        Annotated[str, Meta(description="Only if it was not modified after this date.")] | None
    ) = None

    @property
    def conditions(self) -> Conditions:
        """The conditions, checked before the patch is read."""
        return Conditions(
            if_match=self.if_match,
            if_none_match=self.if_none_match,
            if_unmodified_since=http_date(self.if_unmodified_since, "If-Unmodified-Since"),
        )
