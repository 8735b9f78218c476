"""The official client's part of the signature, from the specification (job-router.md 3.1)."""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from relevo.http.access.key_model import NewKey

if TYPE_CHECKING:
    from tests.http.conftest import Site

SIGNING = NewKey(name="s", kind="signing", roles=("admin",))


def signed(
    secret: str,
    method: str,
    target: str,
    host: str,
    *,
    body: bytes = b"",
    now: datetime | None = None,
) -> dict[str, str]:
    """Return the headers of a signed request."""
    content = base64.b64encode(hashlib.sha256(body).digest()).decode()
    date = (now or datetime.now(UTC)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    text = f"{method}\n{target}\n{date};{host};{content}"
    digest = hmac.new(base64.b64decode(secret), text.encode(), "sha256").digest()
    return {
        "x-ms-date": date,
        "x-ms-content-sha256": content,
        "Authorization": "HMAC-SHA256 SignedHeaders=x-ms-date;host;x-ms-content-sha256&Signature="
        + base64.b64encode(digest).decode(),
    }


class Signer:
    """A client with a signing key."""

    def __init__(self, site: Site, secret: str) -> None:
        self.site = site
        self.secret = secret
        self.host = f"{site.address.host}:{site.address.port}"

    async def ask(self, method: str, target: str, body: bytes = b"", **changes: Any) -> Any:
        sent = changes.pop("sent", None)
        as_host = changes.pop("as_host", self.host)
        headers = signed(self.secret, method, target, as_host, body=body, **changes)
        if body:
            headers["Content-Type"] = "application/json"
        data = body if sent is None else sent
        return await self.site.ask(method, target, headers=headers, data=data or None)
