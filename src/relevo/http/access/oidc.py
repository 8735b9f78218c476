"""Bearer tokens of an OpenID Connect issuer: signature, subject and roles.

The issuer's keys are fetched when a token needs them and kept; a key that is not among them makes
them be fetched again, but at a bounded rate. A token that cannot be verified is refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from relevo.errors import OutboundFailed, SettingsError, Unauthenticated, Unavailable
from relevo.http.access import roles
from relevo.http.access.authenticator import Principal

if TYPE_CHECKING:
    from datetime import datetime

    from relevo.kernel.outbound.lazy_client import OutboundCalls

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")
"""Signatures with a public key; a secret that both sides know would not do."""
LEEWAY_SECONDS: Final = 60
KEPT_SECONDS: Final = 3_600.0
"""How long the issuer's keys are used without asking again."""
REFETCH_SECONDS: Final = 30.0
"""The shortest time between two fetches."""
TOKEN_BYTES_MAX: Final = 8_192
_REFUSED: Final = "this token is not valid here: it is expired, foreign or damaged"


class Issuer:
    """Verifies the tokens of one issuer.

    Needs `joserfc`, which the extra `oidc` installs; raises `SettingsError` without it.
    """

    def __init__(self, client: OutboundCalls, url: str, audience: str, roles_claim: str) -> None:
        try:
            import joserfc  # noqa: F401 - whether it is there
        except ImportError:
            raise SettingsError(
                "oidc_issuer is set, and joserfc is not installed; install relevo[oidc]"
            ) from None
        self._client = client
        self._url = url.rstrip("/")
        self._audience = audience
        self._roles_claim = roles_claim
        self._keys: Any = None
        self._about: dict[str, Any] = {}
        self._fetched_at = -KEPT_SECONDS
        self._fetching = asyncio.Lock()

    @staticmethod
    def is_token(text: bytes) -> bool:
        """Whether a bearer looks like a token and not like a key."""
        return text.count(b".") == 2 and len(text) <= TOKEN_BYTES_MAX

    async def principal(self, token: bytes, now: datetime) -> Principal:
        """Return the principal of a token; raises `Unauthenticated`, `Unavailable`."""
        return self.principal_of(await self.claims(token.decode("latin-1"), now))

    def principal_of(self, claims: Mapping[str, Any]) -> Principal:
        """Return the principal of claims that were verified."""
        given = tuple(one for one in _texts(claims, self._roles_claim) if roles.is_role(one))
        name = claims.get("preferred_username") or claims.get("name") or claims["sub"]
        return Principal(
            id=f"oidc:{claims['sub']}",
            name=str(name),
            permissions=roles.permissions_of(given),
            scopes=roles.scopes_of(given),
            reach=roles.reach_of(given),
        )

    def roles_in(self, claims: Mapping[str, Any]) -> list[str]:
        """Return the words of the claim that names roles."""
        return _texts(claims, self._roles_claim)

    async def endpoints(self) -> dict[str, Any]:
        """Return what the issuer says about itself; raises `Unavailable`."""
        await self._key_set(again=False)
        return self._about

    async def claims(
        self, token: str, now: datetime, *, audience: str | None = None
    ) -> dict[str, Any]:
        """Return the claims of a token for us, or for `audience`; raises `Unauthenticated`."""
        from joserfc import jwt
        from joserfc.errors import JoseError

        registry = jwt.JWTClaimsRegistry(
            now=int(now.timestamp()),
            leeway=LEEWAY_SECONDS,
            iss={"essential": True, "value": self._url},
            aud={"essential": True, "value": audience or self._audience},
            sub={"essential": True},
            exp={"essential": True},
        )
        for again in (False, True):
            keys = await self._key_set(again=again)
            try:
                found = jwt.decode(token, keys, algorithms=list(ALGORITHMS))
                registry.validate(found.claims)
                return found.claims
            except (JoseError, ValueError) as error:
                if again or not _is_unknown_key(error):
                    break
        raise Unauthenticated(_REFUSED)

    async def _key_set(self, *, again: bool) -> Any:
        """Return the issuer's keys; fetched if they are old, or `again` and not just fetched."""
        async with self._fetching:
            age = time.monotonic() - self._fetched_at
            if self._keys is None or age > KEPT_SECONDS or (again and age > REFETCH_SECONDS):
                self._keys = await self._fetched()
                self._fetched_at = time.monotonic()
            return self._keys

    async def _fetched(self) -> Any:
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        try:
            about = await self._json(f"{self._url}/.well-known/openid-configuration")
            if str(about["issuer"]).rstrip("/") != self._url:
                raise Unavailable(f"the issuer at {self._url} calls itself by another name")
            keys = KeySet.import_key_set(await self._json(about["jwks_uri"]))
            self._about = about
            return keys
        except (
            OutboundFailed,
            KeyError,
            TypeError,
            AttributeError,
            JoseError,
            ValueError,
        ) as error:
            raise Unavailable(f"the keys of the issuer cannot be had: {error}") from error

    async def _json(self, url: str) -> Any:
        answer = await self._client.get(url, {"accept": "application/json"})
        if answer.status != 200:
            raise OutboundFailed(f"{url} answered {answer.status} instead of 200")
        return msgspec.json.decode(answer.body)


def _is_unknown_key(error: Exception) -> bool:
    """Whether another set of keys might help: the issuer may have changed them."""
    from joserfc.errors import BadSignatureError, InvalidKeyIdError

    return isinstance(error, BadSignatureError | InvalidKeyIdError | ValueError)


def _texts(claims: Mapping[str, Any], path: str) -> list[str]:
    """Return the words of a claim: a list of them, or one text with spaces between."""
    found: Any = claims
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    if isinstance(found, str):
        return found.split()
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []
