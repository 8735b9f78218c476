"""Commands for queues and their messages."""
