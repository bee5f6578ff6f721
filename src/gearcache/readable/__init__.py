"""Shows a stored entry as text for people, without torch."""
