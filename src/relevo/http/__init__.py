"""Relevo over HTTP: one table of operations, and what makes it an API."""
