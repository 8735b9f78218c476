"""How policies and queues are answered: as they are stored, without their secrets. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relevo.router import documents

if TYPE_CHECKING:
    from relevo.router.administration import Stored


def resource(stored: Stored) -> dict[str, Any]:
    """Return a policy or queue: what is unset is left out, what is empty is there."""
    document = documents.shown(stored.document)
    if stored.kind == "queues":
        labels = {**document.get("labels", {}), documents.ID_LABEL: stored.id}
        document = {**document, "labels": labels}
    return {"id": stored.id, "etag": stored.etag, **document}
