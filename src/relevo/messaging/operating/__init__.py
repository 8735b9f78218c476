"""What operators see and do: figures, peeking, commands on messages and consumers, duties."""
