"""What all parts stand on: it knows no part."""
