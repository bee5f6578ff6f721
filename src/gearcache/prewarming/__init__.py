"""Compiles and stores what calls will need, without serving them."""
