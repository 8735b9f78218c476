"""Connections: opening them, the settings of their sessions, and sharing them."""
