"""The style sheet, the scripts and the icon, under URLs that change with their content."""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
from typing import Final

from relevo.errors import NotFound
from relevo.http.answers import Answer

_TYPES: Final = {
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}


@functools.cache
def _files() -> dict[str, bytes]:
    folder = importlib.resources.files("relevo.dashboard") / "assets"
    return {
        each.name: each.read_bytes()
        for each in sorted(folder.iterdir(), key=lambda each: each.name)
        if each.name.rpartition(".")[2] in _TYPES
    }


@functools.cache
def version() -> str:
    """Return a hash of all files: the folder of their URLs, so that scripts find each other."""
    content = hashlib.sha256()
    for name, text in _files().items():
        content.update(f"{name} {len(text)} ".encode() + text)
    return content.hexdigest()[:16]


def answer(hash_: str, name: str) -> Answer:
    """Return a file for browsers to keep; raises `NotFound`."""
    text = _files().get(name)
    if text is None or hash_ != version():
        raise NotFound("there is no such file; load the page again")
    kind = _TYPES[name.rpartition(".")[2]]
    kept = (b"cache-control", b"public, max-age=31536000, immutable")
    return Answer(200, ((b"content-type", kind), kept), text)
