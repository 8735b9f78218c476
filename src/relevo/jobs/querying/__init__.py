"""Queries over jobs: the tables as queries see them, conditions, views and chains."""
