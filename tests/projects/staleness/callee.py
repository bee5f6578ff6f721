"""Functions of another file."""

import functools

import deeper

OFFSET = 1.0


def shift(x):
    return x + OFFSET + deeper.last(x)


def plus_one(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments) + 1

    return wrapper


def unrelated(x):
    return x
