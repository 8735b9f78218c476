"""Reminders and durable messages whose time has come."""
