"""What happened: counters, times, shapes met, progress."""
