"""What decides about governed resources: pure, without I/O."""
