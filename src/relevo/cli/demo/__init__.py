"""`relevo demo`: what there is, shown on real processes."""
