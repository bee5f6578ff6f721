"""Records what happened: counters, times, shapes of calls, progress."""
