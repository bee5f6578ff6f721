"""Values only; the trace calls one function of this file."""

GAIN = 2.0
TABLE = {"bias": 1.0, "unused": 3.0}
UNUSED = 5


class Depth:
    width = 4


class Namespace:
    depth = Depth


def deep(x):
    return x
