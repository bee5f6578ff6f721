"""Cases: one method each, by what it depends on."""
