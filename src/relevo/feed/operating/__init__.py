"""Operating the feed: units, lag, dead letters, splits, trimming."""
