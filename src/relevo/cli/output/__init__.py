"""Shows results and live views, as text for people and for programs."""
