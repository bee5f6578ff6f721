"""Stand-ins for other libraries' functions, under their names and signatures."""
