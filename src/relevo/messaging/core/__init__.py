"""What decides in messaging: plain functions on plain values, without I/O."""
