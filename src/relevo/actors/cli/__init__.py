"""Commands about actors that operations do not give."""
