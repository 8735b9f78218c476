"""Scores that a rule gives: the workers of each call, and the meaning of the values.

Pure. Rules that are answered elsewhere need their `calls` made first; the others have their values
at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from relevo.errors import RuleFailed
from relevo.router.core import rules
from relevo.router.core.rules import RuleCall
from relevo.router.core.scoring import payload

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from relevo.router.core.rules import Answers
    from relevo.router.matching.situation import JobState, Scoring, WorkerState
    from relevo.router.wire.policies import RouterRule

_PLACE: Final = "/mode/scoringRule"


def calls(
    rule: RouterRule, scoring: Scoring, job: JobState, workers: Sequence[WorkerState]
) -> tuple[RuleCall, ...]:
    """Return the calls that must be made before `scores`; none for a rule of ours."""
    if not rules.is_external(rule):
        return ()
    return tuple(
        RuleCall(place, rule, payload(scoring, job, asked))
        for place, asked in _requests(scoring, workers)
    )


def scores(
    rule: RouterRule,
    scoring: Scoring,
    job: JobState,
    workers: Sequence[WorkerState],
    answers: Answers | None = None,
) -> dict[str, float]:
    """Return the scores that a rule gives, by worker; one without a score is left out.

    Raises `RuleFailed` if the rule failed for all of them: then it is the rule, and not a worker.
    """
    found: dict[str, float] = {}
    answered, failure = not workers, None
    for place, asked in _requests(scoring, workers):
        try:
            value = rules.value_of(rule, payload(scoring, job, asked), answers or {}, place)
            if scoring.batch:
                found |= rules.scores(value, [one.id for one in asked])
            else:
                found[asked[0].id] = rules.score(value)
            answered = True
        except RuleFailed as error:
            failure = failure or error.message
    if not answered:
        raise RuleFailed(f"the scoring rule gave no score at all: {failure}", pointer=_PLACE)
    return found


def _requests(
    scoring: Scoring, workers: Sequence[WorkerState]
) -> Iterator[tuple[str, Sequence[WorkerState]]]:
    """Yield the groups of workers of each call, with a name for its answer."""
    size = scoring.batch_size if scoring.batch else 1
    for start in range(0, len(workers), size):
        yield f"{_PLACE}#{start}", workers[start : start + size]
