"""Relevo inside web frameworks: `starlette` (and FastAPI), `django`."""
