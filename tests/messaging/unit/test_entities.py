"""Properties of entities: by kind, with their bounds, and what can change."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from relevo.errors import Conflict, InvalidValue
from relevo.kernel.backoff import Backoff
from relevo.messaging.core.classes import CLASSES
from relevo.messaging.core.entities import EntityProperties, changed, check_forward, defined
from relevo.messaging.model import Aging, Fifo, Strict


def test_the_defaults_are_those_of_every_kind() -> None:
    assert defined("queue", {}) == EntityProperties()
    assert EntityProperties().ordering == Aging()


def test_what_is_given_is_taken_as_it_is_stored() -> None:
    found = defined(
        "queue",
        {
            "lock_duration": timedelta(minutes=2),
            "ordering": Strict(),
            "fair": True,
            "classes": [CLASSES[2], CLASSES[0], CLASSES[1]],
            "classifier": [("tier = 'paying'", "HIGH")],
            "abandon_backoff": Backoff(first=1.0),
        },
    )
    assert (found.lock_duration, found.ordering) == (120.0, Strict())
    assert found.classes == CLASSES
    assert found.abandon_backoff == Backoff(first=1.0)
    assert changed("queue", found, {"ordering": Fifo(), "fair": False}).classes == CLASSES


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        ("queue", {"lock_duration": 0.5}, "from 1 to 43200"),
        ("queue", {"max_delivery_count": 0}, "max_delivery_count"),
        ("queue", {"max_delivery_count": True}, "cannot have"),
        ("queue", {"default_message_ttl": float("nan")}, "default_message_ttl"),
        ("topic", {"duplicate_detection_window": 19}, "from 20 to 604800"),
        ("topic", {"lock_duration": 60}, "a topic has no property 'lock_duration'"),
        ("subscription", {"max_size_bytes": 2**30}, "no property"),
        ("queue", {"dead_letter_on_filter_error": True}, "no property"),
        ("queue", {"colour": "red"}, "no property 'colour'"),
        ("queue", {"max_message_bytes": 101 * 2**20}, "max_message_bytes"),
        ("queue", {"auto_delete_on_idle": 299}, "auto_delete_on_idle"),
        ("queue", {"status": "asleep"}, "cannot have"),
        ("queue", {"ordering": "strict"}, "cannot have"),
        ("queue", {"fair": True}, "fair=True does not fit"),
        ("queue", {"classes": CLASSES[:2]}, "belongs to no class"),
        ("queue", {"classifier": [("true", "gold")]}, "no class 'gold'"),
        ("queue", {"forward_to": "a b"}, "no name"),
        ("queue", {"forward_to": "b", "requires_session": True}, "cannot forward"),
        ("queue", {"max_lock_age": 30}, "less than the lock_duration"),
        ("queue", {"user_metadata": "x" * 1_025}, "1024 characters"),
        ("queue", {"events": "some"}, "cannot have"),
        ("queue", {"abandon_backoff": object()}, "cannot have"),
        ("queue", {"abandon_backoff": Backoff(first=-1.0)}, "abandon_backoff is"),
        ("queue", {"abandon_backoff": Backoff(first=9.0, longest=1.0)}, "not more than longest"),
        ("queue", {"abandon_backoff": Backoff(factor=0.5)}, "factor from 1"),
        ("queue", {"abandon_backoff": Backoff(jitter=(1.0, 0.0))}, "the smaller first"),
    ],
)
def test_properties_that_cannot_be_are_refused_by_name(
    kind: Any, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidValue, match=said):
        defined(kind, given)


@pytest.mark.parametrize("name", ["requires_session", "requires_duplicate_detection"])
def test_some_properties_never_change(name: str) -> None:
    current = EntityProperties()
    with pytest.raises(Conflict, match=f"{name} of a queue cannot change"):
        changed("queue", current, {name: True})
    assert changed("queue", current, {name: False, "max_delivery_count": 3}) == replace(
        current, max_delivery_count=3
    )


def test_forwarding_in_a_circle_is_refused() -> None:
    forwards = {"b": "c", "c": "d"}
    check_forward("a", "b", forwards)
    for source in ("b", "C", "d"):
        with pytest.raises(InvalidValue, match="makes a circle"):
            check_forward(source, "B", forwards)
