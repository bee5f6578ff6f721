"""`gearcache.attach`: a module whose calls, whoever makes them, run through compiled graphs kept on disk."""
