"""The one runtime of handlers: calls, time limits, verdicts, slots and rounds; it knows no part."""
