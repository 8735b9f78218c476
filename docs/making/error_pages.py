"""A page for each code of an error: what happened, whose fault, safe to repeat, what to do."""

from __future__ import annotations

import inspect
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from relevo import errors
from relevo.http import answers
from relevo.http.operations import OPERATIONS

from .error_tables import executed, public_errors
from .writing import ROOT, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER: Final = ROOT / "docs" / "reference" / "errors"
ADVICE: Final = Path(__file__).with_name("error_advice.toml")
OPERATIONS_SHOWN: Final = 12


def pages() -> dict[Path, str]:
    """Return the text of every page."""
    kinds: dict[str, list[type[errors.RelevoError]]] = defaultdict(list)
    for kind in public_errors():
        kinds[kind.code].append(kind)
    advice = tomllib.loads(ADVICE.read_text("utf-8"))
    unknown = advice.keys() - kinds.keys()
    assert not unknown, f"{ADVICE.name} has advice for codes that do not exist: {unknown}"
    return {
        FOLDER / f"{code}.md": "\n".join(_page(code, alike, advice.get(code, "")))
        for code, alike in kinds.items()
    }


def _page(code: str, kinds: list[type[errors.RelevoError]], advice: str) -> Iterator[str]:
    first = kinds[0]
    yield f"# `{code}`\n\n<!-- made by docs/generate.py from the class of the error -->\n"
    for kind in kinds:
        told = " ".join(inspect.cleandoc(kind.__doc__ or answers.sentence(kind)).split())
        yield f"**What happened.** {told}" + (
            f" (`relevo.{kind.__name__}`)\n" if len(kinds) > 1 else "\n"
        )
    yield f"**Whose fault.** {_fault(first)}\n"
    yield f"**Is it safe to repeat?** {_repeat(first)}\n"
    yield f"**What to do.** {' '.join(advice.split()) or _default_advice(first)}\n"
    names = " or ".join(f"`{kind.__name__}`" for kind in kinds)
    yield f"In Python: {names}. Over HTTP: status {first.status}, `code` is `{code}`."
    if places := [o.name for o in OPERATIONS if any(kind in o.errors for kind in kinds)]:
        more = len(places) - OPERATIONS_SHOWN
        shown = listed(places[:OPERATIONS_SHOWN]) + (f" and {more} more" if more > 0 else "")
        yield f"[Operations](../operations.md) that may answer so: {shown}."
    yield "\nBack to [all errors](../errors.md).\n"


def _fault(kind: type[errors.RelevoError]) -> str:
    if issubclass(kind, errors.HandlerError):
        return "The program's: a handler raised, and its exception is the cause."
    if kind.fault == "caller":
        return "The caller's: the request, or the moment it was sent, is wrong."
    return "The system's: the request may be fine."


def _repeat(kind: type[errors.RelevoError]) -> str:
    ran = {
        "no": "The method did not run.",
        "yes": "The method ran, without effect on the state of the actor.",
        "unknown": "It is unknown whether the method ran.",
    }.get(executed(kind), "")
    if issubclass(kind, errors.OutcomeUnknown):
        answer = "Only if the operation is idempotent: it may have happened."
    elif kind.retryable:
        answer = "Yes: it did not happen, and a repeat may succeed."
    else:
        answer = "A repeat of the same call fails again, unless something else has changed."
    return f"{answer} {ran}".strip()


def _default_advice(kind: type[errors.RelevoError]) -> str:
    said = "The message names the value and the next step."
    if issubclass(kind, errors.HandlerError):
        return f"{said} Look at the exception that is the cause."
    if kind.fault == "caller" and not kind.retryable:
        return f"{said} Correct the request."
    if kind.retryable:
        return f"{said} Try again after a pause that grows and is partly random."
    return f"{said} Look at the log of the host, and at `relevo doctor`."
