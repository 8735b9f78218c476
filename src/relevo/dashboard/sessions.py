"""Sign-in: sessions in sealed cookies, one-time links, and the checks of forms.

A session is a cookie that the installation's master key seals: all hosts can open it, and nothing
is stored. It holds the access key or token that was signed in with, which is checked
at every request like that of any caller. So a revoked key ends its sessions.
"""

from __future__ import annotations

import base64
import binascii
import secrets
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from relevo.errors import Forbidden, Unauthenticated
from relevo.http.access.authenticator import LOCAL_ADMIN
from relevo.http.request import origin

if TYPE_CHECKING:
    from collections.abc import Callable

    from relevo.http.access.authenticator import Authenticator, Principal
    from relevo.http.request import Head
    from relevo.kernel.sealing import MasterKey

SESSION_SECONDS: Final = 12 * 3_600.0
LINK_SECONDS: Final = 15 * 60.0
TOKEN_BYTES_MAX: Final = 2_500
"""The longest key or token: browsers take cookies of 4,096 bytes."""
_OWNER: Final = "dashboard session"


class Session(Struct, frozen=True):
    """A sign-in; `token` None is the local administrator's, by a one-time link."""

    id: str
    token: str | None
    csrf: str
    expires_at: float


class Sessions:
    """Opens and seals sessions."""

    def __init__(
        self,
        master: MasterKey,
        authenticator: Authenticator,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._master = master
        self._authenticator = authenticator
        self._clock = clock
        self._links: dict[str, float] = {}
        self.cookie: Final = f"relevo_session_{master.fingerprint[:8]}"
        """By installation: cookies of one machine are shared by all its ports."""

    def link_code(self) -> str:
        """Return a code that signs the local administrator in, once, within 15 minutes."""
        code = secrets.token_urlsafe(24)
        self._links[code] = self._clock() + LINK_SECONDS
        return code

    async def sign_in(self, token: str) -> str:
        """Return the cookie of a new session for a key or token; raises `Unauthenticated`."""
        if not token or len(token.encode()) > TOKEN_BYTES_MAX:
            raise Unauthenticated("this is not an access key")
        await self._authenticator.bearer(token.encode())
        return self._sealed(token)

    def sign_in_by_link(self, code: str) -> str:
        """Return the cookie of a new session of the local administrator."""
        until = self._links.pop(code, 0.0)
        if until < self._clock():
            raise Unauthenticated("this link was used already, or is older than 15 minutes")
        return self._sealed(None)

    async def of(self, head: Head) -> tuple[Session, Principal] | None:
        """Return the session of a request and its principal; None if it has none."""
        text = cookies_of(head).get(self.cookie)
        session = None if text is None else self._opened(text)
        if session is None or session.expires_at < self._clock():
            return None
        if session.token is None:
            return session, LOCAL_ADMIN
        try:
            caller = await self._authenticator.bearer(session.token.encode())
        except Unauthenticated:
            return None
        return session, caller.principal

    def _sealed(self, token: str | None) -> str:
        expires_at = self._clock() + SESSION_SECONDS
        made = Session(secrets.token_hex(8), token, secrets.token_urlsafe(24), expires_at)
        sealed = self._master.seal(msgspec.json.encode(made), _OWNER)
        return base64.urlsafe_b64encode(sealed).decode()

    def _opened(self, text: str) -> Session | None:
        try:
            sealed = base64.urlsafe_b64decode(text)
            return msgspec.json.decode(self._master.open(sealed, _OWNER), type=Session)
        except (binascii.Error, ValueError):
            return None


def cookies_of(head: Head) -> dict[str, str]:
    """Return the cookies of a request; of those that are there twice, the first."""
    found: dict[str, str] = {}
    for value in head.values(b"cookie"):
        for part in value.decode("latin-1").split(";"):
            name, _, text = part.strip().partition("=")
            found.setdefault(name, text)
    return found


def cookie(
    head: Head, name: str, value: str, *, path: str, seconds: float, readable: bool = False
) -> tuple[bytes, bytes]:
    """Return the header that sets a cookie; no seconds remove it."""
    flags = "" if readable else "; HttpOnly"
    if origin(head).startswith("https:"):
        flags += "; Secure"
    text = f"{name}={value}; Path={path or '/'}; Max-Age={int(seconds)}; SameSite=Strict{flags}"
    return b"set-cookie", text.encode()


def check_origin(head: Head) -> None:
    """Refuse a form that another site has sent; browsers name the site in `Origin`."""
    sent = (head.value(b"origin") or b"").decode("latin-1")
    if not sent or urlsplit(sent).netloc != urlsplit(origin(head)).netloc:
        raise Forbidden(f"this form was sent from {sent or 'an unknown site'}, not from this page")


def check_csrf(session: Session, sent: str) -> None:
    """Refuse a form without the token of the session."""
    if not secrets.compare_digest(session.csrf.encode(), sent.encode("utf-8", "replace")):
        raise Forbidden("this form is from another session; load the page again and repeat")
