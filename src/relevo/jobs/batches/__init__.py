"""Batches: many jobs under one id, with counts, and a job that runs when all have ended."""
