"""What an actor holds in memory: its document, its maps, and the journal of a turn."""
