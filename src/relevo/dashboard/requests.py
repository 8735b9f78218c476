"""A request to the dashboard: who sends it, in which language, and its form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from msgspec import Struct

from relevo import limits
from relevo.dashboard import languages, static_files
from relevo.dashboard.languages import Language
from relevo.dashboard.sessions import Session, cookies_of
from relevo.errors import InvalidValue, TooLarge, UnsupportedMediaType
from relevo.http.access.authenticator import Principal
from relevo.http.answers import Answer
from relevo.http.request import Head
from relevo.kernel.decoding import refuse_unstorable

if TYPE_CHECKING:
    from relevo.http.streaming import Receive

THEMES: Final = ("auto", "light", "dark")
HTML: Final = b"text/html; charset=utf-8"
NOTICE: Final = "relevo_notice"
"""The cookie that brings what an action has done to the next page."""
Fields = dict[str, list[str]]


class DashboardRequest(Struct, frozen=True, kw_only=True):
    """A request whose sender is known, if it has signed in."""

    head: Head
    path: str
    """Below the prefix."""
    prefix: str
    parameters: Mapping[str, str]
    query: Fields
    language: Language
    theme: str
    session: Session | None
    principal: Principal | None

    @property
    def here(self) -> str:
        """The page with its fields, below the prefix; for coming back to it."""
        query = self.head.query.decode("ascii", "replace")
        return f"{self.path}?{query}" if query else self.path

    def variables(self) -> dict[str, Any]:
        """Return what every template knows."""
        return {
            "t": self.language,
            "theme": self.theme,
            "prefix": self.prefix,
            "assets": f"{self.prefix}/assets/{static_files.version()}",
            "here": self.here,
            "principal": self.principal,
            "csrf": "" if self.session is None else self.session.csrf,
            "languages": languages.NAMES,
            "themes": THEMES,
            "notice": None,
        }


def language_of(head: Head) -> Language:
    """Return the language that was chosen, else the one that the browser asks for."""
    chosen = cookies_of(head).get("relevo_language", "")
    if chosen not in languages.NAMES:
        accepted = (head.value(b"accept-language") or b"").decode("latin-1")
        chosen = languages.preferred(accepted)
    return languages.language(chosen)


def theme_of(head: Head) -> str:
    """Return the theme that was chosen; `auto` is the one of the viewer's system."""
    chosen = cookies_of(head).get("relevo_theme", "")
    return chosen if chosen in THEMES else "auto"


def fields_of(raw: bytes) -> Fields:
    """Return the fields of a query or form; raises `InvalidValue`."""
    found: Fields = {}
    try:
        pairs = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, errors="strict",
            max_num_fields=limits.FORM_FIELDS_MAX,
        )  # fmt: skip
    except (UnicodeDecodeError, ValueError):
        raise InvalidValue(
            f"this is not percent-encoded UTF-8 of at most {limits.FORM_FIELDS_MAX} fields"
        ) from None
    for name, value in pairs:
        refuse_unstorable([name, value], f"/{name[:100]}")
        found.setdefault(name, []).append(value)
    return found


async def form_of(head: Head, receive: Receive) -> Fields:
    """Read the form of a request; raises `TooLarge` or `UnsupportedMediaType`."""
    kind = (head.value(b"content-type") or b"").partition(b";")[0].strip().lower()
    if kind != b"application/x-www-form-urlencoded":
        raise UnsupportedMediaType("send the form as application/x-www-form-urlencoded")
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise InvalidValue("the connection was closed before the form was complete")
        body += message.get("body", b"")
        if len(body) > limits.FORM_BYTES_MAX:
            raise TooLarge(f"the form has more than {limits.FORM_BYTES_MAX} bytes")
        if not message.get("more_body", False):
            return fields_of(body)


def local_target(prefix: str, wanted: str) -> str:
    """Return the URL of a page of the dashboard; anything else becomes the first page.

    >>> local_target("/relevo", "/jobs?a=1"), local_target("", "//evil.example/")
    ('/relevo/jobs?a=1', '/')
    """
    plain = wanted.isprintable() and "\\" not in wanted and " " not in wanted and wanted.isascii()
    safe = plain and wanted.startswith("/") and not wanted.startswith("//")
    return prefix + (wanted if safe else "/")


def redirect(location: str, *headers: tuple[bytes, bytes]) -> Answer:
    """Return the answer that leads to a page after a form."""
    return Answer(303, ((b"location", location.encode()), *headers), b"")


def html(text: str, *headers: tuple[bytes, bytes], status: int = 200) -> Answer:
    """Return a page."""
    return Answer(status, ((b"content-type", HTML), *headers), text.encode())
