"""Payloads as people see them: values of names that sound secret are covered."""

from __future__ import annotations

import re
from typing import Any, Final

_SECRET: Final = re.compile(
    r"pass(word|wd|phrase)?$|secret|token|api[_-]?key|authori[sz]ation|credential|cookie|"
    r"private[_-]?key|card[_-]?number|cvv|iban|ssn",
    re.IGNORECASE,
)
COVER: Final = "\u2022\u2022\u2022"


def redacted(value: Any) -> Any:
    """Return a JSON value with secrets covered.

    >>> redacted({"to": "ana", "smtp_password": "x", "cards": [{"cvv": 123}]})
    {'to': 'ana', 'smtp_password': '•••', 'cards': [{'cvv': '•••'}]}
    """
    match value:
        case dict():
            return {
                name: COVER if _SECRET.search(str(name)) and each is not None else redacted(each)
                for name, each in value.items()
            }
        case list():
            return [redacted(each) for each in value]
        case _:
            return value
