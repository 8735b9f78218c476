"""Bulk operations: delete, mail, import, propagate and compare many rows, as jobs.

A job takes rows in chunks, in the order of their keys, up to the highest key at its start. The
effects of a chunk, its end position and its counts are one commit: after a pause, a crash or a
retry the job continues behind the last chunk, and no row is processed twice. A row that fails is
recorded and skipped.
"""

from relevo.dataverse.bulk.model import Criteria, Criterion, MatchField, Preview, RowQuery
from relevo.dataverse.bulk.service import Bulk

__all__ = ["Bulk", "Criteria", "Criterion", "MatchField", "Preview", "RowQuery"]
