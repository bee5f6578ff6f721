"""What a callee calls."""

LAST = 4.0


def last(x):
    return x * LAST
