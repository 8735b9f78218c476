"""Requests of programs that carry an `Idempotency-Key`, and the answers that they got."""

from relevo.idempotency.service import Idempotency

__all__ = ["Idempotency"]
