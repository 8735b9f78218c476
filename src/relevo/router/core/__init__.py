"""Decisions about router jobs, workers and offers. Pure."""
