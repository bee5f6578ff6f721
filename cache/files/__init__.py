"""Files that no other user could have changed, written whole or not at all."""
