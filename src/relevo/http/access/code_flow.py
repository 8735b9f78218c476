"""Signing people in at an OpenID Connect issuer: authorisation code with PKCE.

begun = CodeFlow.begin()                       # kept by the browser, sealed
await flow.address(begun, redirect)            # where the browser goes
await flow.claims(code, begun, redirect, now)  # when it comes back
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from relevo.errors import OutboundFailed, Unauthenticated, Unavailable

if TYPE_CHECKING:
    from datetime import datetime

    from relevo.http.access.oidc import Issuer
    from relevo.kernel.outbound.lazy_client import OutboundCalls

SCOPE: Final = "openid profile"
_NOT_OURS: Final = "the issuer answered with a token that is not for this sign-in; try again"


class Begun(Struct, frozen=True):
    """A sign-in that has begun: what its answer is held against."""

    state: str
    nonce: str
    verifier: str
    target: str
    """The page to go to afterwards."""


class _Tokens(Struct):
    id_token: str = ""
    access_token: str = ""


class CodeFlow:
    """Signs people in at one issuer, as one of its clients."""

    def __init__(
        self, issuer: Issuer, client: OutboundCalls, client_id: str, client_secret: str | None
    ) -> None:
        self._issuer = issuer
        self._client = client
        self._client_id = client_id
        self._client_secret = client_secret

    @staticmethod
    def begin(target: str) -> Begun:
        """Return a new sign-in."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        return Begun(state, nonce, verifier, target)

    async def address(self, begun: Begun, redirect: str) -> str:
        """Return where the browser goes to sign in; raises `Unavailable`."""
        digest = hashlib.sha256(begun.verifier.encode()).digest()
        query = {
            "response_type": "code", "client_id": self._client_id, "redirect_uri": redirect,
            "scope": SCOPE, "state": begun.state, "nonce": begun.nonce,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }  # fmt: skip
        endpoint = await self._endpoint("authorization_endpoint")
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    async def claims(self, code: str, begun: Begun, redirect: str, now: datetime) -> dict[str, Any]:
        """Return who has signed in, from the code of the issuer's answer.

        The roles may be in the token of the sign-in or in that for the API. Raises
        `Unauthenticated` or `Unavailable`.
        """
        tokens = await self._tokens(code, begun, redirect)
        found = await self._issuer.claims(tokens.id_token, now, audience=self._client_id)
        nonce = found.get("nonce")
        if not isinstance(nonce, str) or not secrets.compare_digest(nonce, begun.nonce):
            raise Unauthenticated(_NOT_OURS)
        if not self._issuer.roles_in(found) and self._issuer.is_token(tokens.access_token.encode()):
            more = await self._issuer.claims(tokens.access_token, now)
            if more["sub"] != found["sub"]:
                raise Unauthenticated(_NOT_OURS)
            found = {**more, **found}
        return found

    async def _tokens(self, code: str, begun: Begun, redirect: str) -> _Tokens:
        form = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": redirect,
            "client_id": self._client_id, "code_verifier": begun.verifier,
        }  # fmt: skip
        if self._client_secret is not None:
            form["client_secret"] = self._client_secret
        headers = {
            "content-type": "application/x-www-form-urlencoded", "accept": "application/json",
        }  # fmt: skip
        endpoint = await self._endpoint("token_endpoint")
        try:
            answer = await self._client.post(
                endpoint, urlencode(form).encode(), headers,
                secret=self._client_secret is not None,
            )  # fmt: skip
        except OutboundFailed as error:
            raise Unavailable(f"the issuer cannot be reached: {error}") from error
        if answer.status != 200:
            raise Unauthenticated(
                f"the issuer refused the sign-in with status {answer.status}; try again"
            )
        try:
            return msgspec.json.decode(answer.body, type=_Tokens)
        except msgspec.DecodeError:
            raise Unauthenticated(_NOT_OURS) from None

    async def _endpoint(self, name: str) -> str:
        found = (await self._issuer.endpoints()).get(name)
        if not isinstance(found, str) or not found.startswith(("https://", "http://")):
            raise Unavailable(f"the issuer does not say where its {name} is")
        return found
