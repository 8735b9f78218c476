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
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from relevo.errors import Forbidden, NotFound, Unauthenticated
from relevo.http.access.authenticator import LOCAL_ADMIN
from relevo.http.access.code_flow import Begun
from relevo.http.request import origin

if TYPE_CHECKING:
    from collections.abc import Callable

    from relevo.http.access.authenticator import Authenticator, Principal
    from relevo.http.access.code_flow import CodeFlow
    from relevo.http.request import Head
    from relevo.kernel.sealing import MasterKey

T = TypeVar("T")
SESSION_SECONDS: Final = 12 * 3_600.0
ISSUER_SESSION_SECONDS: Final = 3_600.0
"""How long a sign-in at the issuer holds: what it says of somebody may change meanwhile."""
LINK_SECONDS: Final = 15 * 60.0
TOKEN_BYTES_MAX: Final = 2_500
"""The longest key or token: browsers take cookies of 4,096 bytes."""
COOKIE_BYTES_MAX: Final = 3_800
_OWNER: Final = "dashboard session"
_BEGUN: Final = "dashboard sign-in"


class Session(Struct, frozen=True):
    """A sign-in; `token` None is the local administrator's, by a one-time link."""

    id: str
    token: str | None
    csrf: str
    expires_at: float
    claims: dict[str, Any] | None = None
    """Who has signed in at the issuer: subject, name and roles, as it said then."""


class Sessions:
    """Opens and seals sessions."""

    def __init__(
        self,
        master: MasterKey,
        authenticator: Authenticator,
        *,
        roles_claim: str = "roles",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._master = master
        self._authenticator = authenticator
        self._clock = clock
        self._links: dict[str, float] = {}
        self.cookie: Final = f"relevo_session_{master.fingerprint[:8]}"
        """By installation: cookies of one machine are shared by all its ports."""
        self.begun_cookie: Final = f"relevo_sign_in_{master.fingerprint[:8]}"
        self._kept = ("sub", "name", "preferred_username", roles_claim.partition(".")[0])

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

    @property
    def at_issuer(self) -> bool:
        """Whether people can sign in at an issuer."""
        return self._authenticator.flow is not None

    async def begin_at_issuer(self, target: str, redirect: str) -> tuple[str, str]:
        """Return where the browser goes, and the cookie that it comes back with."""
        flow = self._flow()
        begun = flow.begin(target)
        return await flow.address(begun, redirect), self._seal(begun, _BEGUN)

    async def end_at_issuer(
        self, head: Head, code: str, state: str, redirect: str
    ) -> tuple[str, str]:
        """Return the cookie of a new session, and the page to go to; raises `Unauthenticated`."""
        begun = self._open(cookies_of(head).get(self.begun_cookie, ""), _BEGUN, Begun)
        if begun is None or not secrets.compare_digest(begun.state.encode(), state.encode()):
            raise Unauthenticated("this sign-in was not begun in this browser; begin again")
        now = await self._authenticator.now()
        claims = await self._flow().claims(code, begun, redirect, now)
        principal = await self._authenticator.identity(claims)
        if not principal.permissions:
            raise Unauthenticated(f"{principal.name} has no role here; ask an administrator")
        kept = {name: claims[name] for name in self._kept if name in claims}
        made = self._sealed(None, kept)
        if len(made) > COOKIE_BYTES_MAX:
            raise Unauthenticated("the issuer names more roles than a session holds")
        return made, begun.target

    def _flow(self) -> CodeFlow:
        if self._authenticator.flow is None:
            raise NotFound("people do not sign in at an issuer here; use an access key")
        return self._authenticator.flow

    async def of(self, head: Head) -> tuple[Session, Principal] | None:
        """Return the session of a request and its principal; None if it has none."""
        text = cookies_of(head).get(self.cookie)
        session = None if text is None else self._opened(text)
        if session is None or session.expires_at < self._clock():
            return None
        if session.claims is not None:
            return session, await self._authenticator.identity(session.claims)
        if session.token is None:
            return session, LOCAL_ADMIN
        try:
            caller = await self._authenticator.bearer(session.token.encode())
        except Unauthenticated:
            return None
        return session, caller.principal

    def _sealed(self, token: str | None, claims: dict[str, Any] | None = None) -> str:
        seconds = SESSION_SECONDS if claims is None else ISSUER_SESSION_SECONDS
        made = Session(
            secrets.token_hex(8), token, secrets.token_urlsafe(24), self._clock() + seconds, claims
        )
        return self._seal(made, _OWNER)

    def _seal(self, value: Struct, owner: str) -> str:
        sealed = self._master.seal(msgspec.json.encode(value), owner)
        return base64.urlsafe_b64encode(sealed).decode()

    def _opened(self, text: str) -> Session | None:
        return self._open(text, _OWNER, Session)

    def _open(self, text: str, owner: str, kind: type[T]) -> T | None:
        try:
            sealed = base64.urlsafe_b64decode(text)
            return msgspec.json.decode(self._master.open(sealed, owner), type=kind)
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
    head: Head,
    name: str,
    value: str,
    *,
    path: str,
    seconds: float,
    readable: bool = False,
    same_site: str = "Strict",
) -> tuple[bytes, bytes]:
    """Return the header that sets a cookie; no seconds remove it."""
    flags = "" if readable else "; HttpOnly"
    if origin(head).startswith("https:"):
        flags += "; Secure"
    text = (
        f"{name}={value}; Path={path or '/'}; Max-Age={int(seconds)}; SameSite={same_site}{flags}"
    )
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
