"""How well a worker suits a job: the score without a rule, and the input of rules.

default_score({}, selectors, {"language": "french", "sales": 15, "cost": 10})   # 0.707
"""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING, Any, Final

from relevo.kernel.labels import ORDERINGS, Value, holds, kind, same

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from relevo.router.core.selectors import WorkerSelector
    from relevo.router.matching.situation import JobState, Scoring, WorkerState

STEEPEST: Final = 60.0
"""How far from a threshold counts; e to the power of more would overflow some day."""


def default_score(
    wanted: Mapping[str, Value],
    selectors: Sequence[WorkerSelector],
    labels: Mapping[str, Value],
) -> float:
    """Return the average, from 0 to 1, of how well labels meet all that a job asks for.

    `wanted` are the job's labels, each of which asks for an equal one. Expired selectors ask for
    nothing; without any condition, every worker scores 0.
    """
    active = [selector for selector in selectors if selector.status == "active"]
    asked = len(wanted) + len(active)
    if not asked:
        return 0.0
    met = sum(key in labels and same(labels[key], value) for key, value in wanted.items())
    return (met + sum(_degree(one, labels.get(one.key)) for one in active)) / asked


def _degree(selector: WorkerSelector, label: Value | None) -> float:
    value = selector.value
    if selector.label_operator not in ORDERINGS:
        return float(holds(selector.label_operator, label, value))
    if kind(label) != "number" or kind(value) != "number":
        return 0.0
    assert isinstance(label, int | float)
    assert isinstance(value, int | float)
    ahead = label - value if selector.label_operator.startswith("greater") else value - label
    try:
        distance = ahead / (abs(value) or 1)
    except OverflowError:  # whole numbers have no largest one
        distance = STEEPEST if (ahead > 0) else -STEEPEST
    return 1 / (1 + exp(-max(-STEEPEST, min(STEEPEST, distance))))


def payload(scoring: Scoring, job: JobState, workers: Sequence[WorkerState]) -> dict[str, Any]:
    """Return the input of a scoring rule: one worker, or all with batch scoring."""
    payload: dict[str, Any] = {}
    if "jobLabels" in scoring.parameters:
        payload["job"] = dict(job.labels)
    if "workerSelectors" in scoring.parameters:
        payload["selectors"] = [
            _selector(selector) for selector in job.selectors if selector.status == "active"
        ]
    if scoring.batch:
        payload["workers"] = [worker.all_labels for worker in workers]
    else:
        (one,) = workers
        payload["worker"] = one.all_labels
    return payload


def _selector(selector: WorkerSelector) -> dict[str, Any]:
    # Published samples differ in the name of the operator, so rules find both.
    payload = {
        "key": selector.key,
        "operator": selector.label_operator,
        "labelOperator": selector.label_operator,
        "value": selector.value,
    }
    if selector.expires_after_seconds is not None:
        payload["expiresAfterSeconds"] = selector.expires_after_seconds
    return payload
