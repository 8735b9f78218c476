"""The texts of the dashboard."""

from __future__ import annotations

import re
from pathlib import Path

from relevo import dashboard
from relevo.dashboard.languages import NAMES, language
from relevo.dashboard.lists import ListPage
from relevo.dashboard.pages import ACTIONS, PAGES

TEMPLATES = Path(dashboard.__file__).parent / "templates"
NAME = re.compile(r"\{(\w+)\}")
USED = re.compile(r"""\bt\("([a-z_.]+)"[,)]""")


def test_all_languages_have_the_same_texts_with_the_same_values() -> None:
    english = language("en").texts
    for code in NAMES:
        texts = language(code).texts
        assert texts.keys() == english.keys(), code
        for key, text in texts.items():
            assert sorted(NAME.findall(text)) == sorted(NAME.findall(english[key])), key
            assert text.strip(), key


def test_every_text_that_templates_and_declarations_name_is_there() -> None:
    texts = language("en").texts
    for template in TEMPLATES.rglob("*.html"):
        for key in USED.findall(template.read_text()):
            assert key in texts, f"{template.name}: {key}"
    for page in PAGES:
        assert f"{page.name}.title" in texts
        assert page.group is None or f"groups.{page.group}" in texts
    for name in ACTIONS:
        assert f"actions.{name}" in texts


def test_every_heading_of_lists_is_there() -> None:
    texts = language("en").texts
    for page in PAGES:
        for section in page.load.sections if isinstance(page.load, ListPage) else ():
            assert f"lists.{section.name}" in texts
            for column in section.columns:
                assert f"fields.{column.field}" in texts, column.field
