"""The shared runtime of handlers: calls, time limits, verdicts, slots and rounds."""
