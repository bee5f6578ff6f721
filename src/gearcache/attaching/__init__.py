"""`gearcache.attach`: serves every call of a module from compiled graphs on disk, whatever code makes the call."""
