"""The tensors of a call: their checks in C, their memory, and their other forms."""
