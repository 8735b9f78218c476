"""Policies and queues as callers see them: as stored, without secrets. Pure.

URLs of rules may hold secrets in their query: only callers that may write them see it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relevo.router.wire import credentials, documents

if TYPE_CHECKING:
    from relevo.router.administration import StoredResource


def resource(stored: StoredResource, *, to_writer: bool = False) -> dict[str, Any]:
    """Return a policy or queue: what is unset is left out, what is empty is there."""
    document = documents.shown(stored.document)
    if not to_writer:
        document = credentials.with_redacted_urls(document)
    if stored.kind == "queues":
        labels = {**document.get("labels", {}), documents.ID_LABEL: stored.id}
        document = {**document, "labels": labels}
    return {"id": stored.id, "etag": stored.etag, **document}
