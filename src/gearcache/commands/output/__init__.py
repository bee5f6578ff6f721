"""Output of commands: for people, pipes and programs."""
