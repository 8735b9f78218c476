"""What decides about router jobs, workers and offers. Pure."""
