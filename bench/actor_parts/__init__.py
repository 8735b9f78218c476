"""What `python -m bench actors` measures, by subject."""
