"""The kernel: shared by all parts, and independent of them."""
