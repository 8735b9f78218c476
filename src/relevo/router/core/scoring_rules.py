"""Scores that a rule gives: who is asked about in which call, and what the values mean.

Pure. Rules that are answered elsewhere need their `calls` made first; the others have their values
at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from relevo.errors import RuleFailed
from relevo.router.core import rules
from relevo.router.core.rules import Call
from relevo.router.core.scoring import payload

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from relevo.router.core.rules import Answers
    from relevo.router.matching.situation import JobState, Scoring, WorkerState
    from relevo.router.wire.policies import RouterRule

_PLACE: Final = "/mode/scoringRule"


def calls(
    rule: RouterRule, scoring: Scoring, job: JobState, workers: Sequence[WorkerState]
) -> tuple[Call, ...]:
    """Return the calls that must be made before `scores`; none for a rule of ours."""
    if not rules.is_external(rule):
        return ()
    return tuple(
        Call(place, rule, payload(scoring, job, asked))
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
    """Yield who is asked about together, each time under a name for the answer."""
    size = scoring.batch_size if scoring.batch else 1
    for start in range(0, len(workers), size):
        yield f"{_PLACE}#{start}", workers[start : start + size]
