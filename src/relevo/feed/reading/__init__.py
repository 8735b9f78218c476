"""Reading changes: the log of a range, filters, positions, and the pull model."""
