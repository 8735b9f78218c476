"""Calls to the outside: an HTTP client that goes only where it may, and never for long.

This module imports nothing, so that settings can check an allow list without loading a client.
"""
