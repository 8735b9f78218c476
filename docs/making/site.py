"""What the site adds to docs/: its navigation, the pages outside of docs/, and the API by part.

mkdocs calls these functions (`hooks` in mkdocs.yml). The navigation is that of docs/index.md, so a
page that the index does not name fails the build.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).parents[1]))

from making import api_tables, llms
from making.writing import ROOT

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

FENCE: Final = re.compile(r"^```(\w+)(?: ([^\n`]*))?$", re.MULTILINE)
SAVED: Final = re.compile(r"(?:file|from)=(\S+)")
LINK: Final = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")
LANGUAGES: Final = {".py": "python", ".yaml": "yaml", "": "text"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take the navigation from the index."""
    nav: list[Any] = ["index.md"]
    for heading, groups in llms.entries().items():
        pages: list[Any] = []
        for below, targets in groups.items():
            paths = [_within(target) for target in dict.fromkeys(targets)]
            pages += [{below: paths}] if below else paths
        if heading == "Reference":
            pages.append({"API by part": [_path(each) for each in api_tables.groups()]})
            pages.append({"Error codes": [{each.stem: _error(each)} for each in _errors()]})
        nav.append({heading: pages})
    config.nav = nav
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the API, and what the pages of docs/ link to outside of it."""
    for heading, names in api_tables.groups().items():
        text = "\n\n".join((f"# {heading}", *(f"::: {name}" for name in sorted(names))))
        files.append(File.generated(config, _path(heading), content=text))
    for page in list(files.documentation_pages()):
        for target in _outside(page.src_uri, page.content_string):
            if files.get_file_from_path(_within_root(target)) is None:
                files.append(File.generated(config, _within_root(target), content=_shown(target)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Write marks of snippets and links to the repository as the site has them."""
    markdown = FENCE.sub(_fence, markdown)
    here = page.file.src_uri
    source = _source(here)

    def link(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), found[2]))
        if not (ROOT / target).exists():
            return found[0]
        path = posixpath.relpath(_on_site(target), posixpath.dirname(here) or ".")
        return f"[{found[1]}]({path}{found[3] or ''})"

    return LINK.sub(link, markdown)


def _fence(found: re.Match[str]) -> str:
    saved = SAVED.search(found[2] or "")
    return f"```{found[1]}" + (f' title="{saved[1]}"' if saved else "")


def _outside(page: str, text: str) -> set[str]:
    """Return the files of the repository outside of docs/ that a page links to."""
    folder = posixpath.dirname(f"docs/{page}")
    targets = {posixpath.normpath(posixpath.join(folder, m[2])) for m in LINK.finditer(text)}
    return {each for each in targets if not each.startswith("docs/") and (ROOT / each).is_file()}


def _shown(target: str) -> str:
    """Return a file of the repository as a page."""
    path = ROOT / target
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        return text
    return f"# {path.name}\n\n```{LANGUAGES.get(path.suffix, 'text')}\n{text}```\n"


def _within_root(target: str) -> str:
    path = posixpath.splitext(target)
    return f"project/{path[0] if path[1] == '.md' else target}.md"


def _source(page: str) -> str:
    """Return the file of the repository that a page of the site is made of."""
    if not page.startswith("project/"):
        return f"docs/{page}"
    inner = page.removeprefix("project/")
    return inner if (ROOT / inner).exists() else inner.removesuffix(".md")


def _on_site(target: str) -> str:
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    return _within_root(target)


def _within(target: str) -> str:
    return _on_site(posixpath.normpath(posixpath.join("docs", target)))


def _path(heading: str) -> str:
    return f"reference/api/{re.sub(r'[^a-z]+', '-', heading.lower()).strip('-')}.md"


def _errors() -> list[Path]:
    return sorted((ROOT / "docs" / "reference" / "errors").glob("*.md"))


def _error(page: Path) -> str:
    return f"reference/errors/{page.name}"
