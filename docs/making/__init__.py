"""Makes the parts of the documentation that follow from the code; `docs/generate.py` runs it."""
