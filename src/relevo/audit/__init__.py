"""The audit: what operators and keys have changed, with their reasons."""

from relevo.audit.service import Audit, AuditEntry

__all__ = ["Audit", "AuditEntry"]
