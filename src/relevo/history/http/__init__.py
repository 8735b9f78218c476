"""`/v1/history`: figures of all parts over time."""
