"""What operators do with actors: lists, dead letters, quarantine, moves."""
