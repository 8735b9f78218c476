"""The tree, the table and the pages of errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relevo import errors
from relevo.http import answers
from relevo.jobs import errors as job_errors

from .writing import attribute_docs, meaning, table

if TYPE_CHECKING:
    from collections.abc import Iterator


def error_tree() -> str:
    """The classes of errors by their bases; the table below says what each means."""
    return "```text\n" + "\n".join(_branch(errors.RelevoError, "", "")) + "\n```\n"


def _branch(kind: type[errors.RelevoError], mark: str, margin: str) -> Iterator[str]:
    also = [base.__name__ for base in kind.__bases__[:-1]]
    yield f"{mark}{kind.__name__}" + (f" (also {', '.join(also)})" if also else "")
    children = _children(kind)
    for child in children:
        edge, inner = ("└── ", "    ") if child is children[-1] else ("├── ", "│   ")
        yield from _branch(child, f"{margin}{edge}", f"{margin}{inner}")


def error_table() -> str:
    """Every error with its code, status, fault, and whether a repetition makes sense."""
    rows = [
        [
            f"`{kind.__name__}`",
            f"[`{kind.code}`](errors/{kind.code}.md)",
            str(kind.status),
            kind.fault,
            "yes" if kind.retryable else "no",
            executed(kind),
            answers.sentence(kind),
        ]
        for kind in public_errors()
    ]
    headings = ["class", "code", "status", "fault", "retryable", "executed", "meaning"]
    return table(headings, rows)


def public_errors() -> list[type[errors.RelevoError]]:
    """Return every error that users meet, in the order of the tree."""
    return [kind for kind in _below(errors.RelevoError) if kind is not errors.SystemFault]


def executed(kind: type[errors.RelevoError]) -> str:
    """Return whether the method of an actor ran, if the error is about a call of one."""
    if not hasattr(kind, "executed"):
        return ""
    return {False: "no", True: "yes", None: "unknown"}[kind.executed]


def problem_table() -> str:
    """The fields of a problem."""
    said = attribute_docs(answers.Problem)
    rows = [[f"`{name}`", meaning(name, said)] for name in answers.Problem.__struct_fields__]
    return table(["field", "meaning"], rows)


def _below(kind: type[errors.RelevoError]) -> list[type[errors.RelevoError]]:
    return [below for child in _children(kind) for below in (child, *_below(child))]


def _children(kind: type[errors.RelevoError]) -> list[type[errors.RelevoError]]:
    """The classes whose place in the tree is below; the last base of a class is its place."""
    ours = (f"{errors.__name__}.", answers.__name__, job_errors.__name__)
    return [
        child
        for child in kind.__subclasses__()
        if child.__module__.startswith(ours) and child.__bases__[-1] is kind
    ]
