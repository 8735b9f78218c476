"""Connections: how they are opened, what their sessions set, and how they are shared."""
