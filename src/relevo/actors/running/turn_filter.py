"""Log lines of code in a turn say whose turn it is."""

from __future__ import annotations

import logging

from relevo.actors.running.turn import CURRENT
from relevo.kernel.telemetry.logs import FIELDS


class TurnFilter(logging.Filter):
    """Adds to log records from a turn of an actor: actor, turn, host, slot, epoch and chain.

    Relevo's own lines have them. For lines of your own, add the filter to your handler:
    `handler.addFilter(relevo.actors.TurnFilter())`. The dict `record.relevo` then has the fields,
    and `%(relevo_turn)s` of a format is a text of them, empty outside of turns.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields; lets every record pass."""
        turn = CURRENT.get()
        fields: dict[str, str | int] = {}
        if turn is not None and not turn.is_over:
            home = turn.activation.home
            fence = home.lease.fence
            fields = {
                "actor": turn.activation.canonical, "turn": turn.work.name,
                "host": home.workers.host, "slot": f"{fence.unit}/{fence.name}".rstrip("/"),
                "epoch": fence.epoch, "chain": f"{turn.chain.id:x}",
            }  # fmt: skip
            setattr(record, FIELDS, {**fields, **getattr(record, FIELDS, {})})
        record.relevo_turn = " ".join(f"{name}={value}" for name, value in fields.items())
        return True
