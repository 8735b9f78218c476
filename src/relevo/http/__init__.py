"""Relevo over HTTP: the server, and one table of operations."""
