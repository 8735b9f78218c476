"""Commands for feeds."""
