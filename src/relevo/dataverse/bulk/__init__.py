"""Bulk operations: delete, mail, import, propagate and compare many rows, as jobs.

Rows are taken in the order of their keys, up to the highest key that there was at the start, in
chunks. What a chunk did, where it ended and how many rows it had is committed together: after a
pause, a crash or a retry the job goes on behind the last chunk, and no row is processed twice. A
row that fails is written down and left out.
"""

from relevo.dataverse.bulk.model import Criteria, Criterion, MatchField, Preview, RowQuery
from relevo.dataverse.bulk.service import Bulk

__all__ = ["Bulk", "Criteria", "Criterion", "MatchField", "Preview", "RowQuery"]
