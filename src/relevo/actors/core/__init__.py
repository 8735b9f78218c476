"""What decides about actors: pure, without I/O."""
