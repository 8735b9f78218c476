"""The stored side of actors: states, turns, messages, reminders, and their administration."""
