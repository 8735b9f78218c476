"""What operators see and do: units, lag, dead letters, cuts, trimming."""
