"""`gearcache.attach`: all calls of a module run through compiled graphs kept on disk."""
