"""Distinguish an exception of the traced code from code that Dynamo cannot trace.

It is a first guess: the method is then run, and raises or not.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

from gearcache.guards.evidence.names import module_of

#: Dynamo's text for an operation that raises; groups are the operation and its error.
FAILED_OPERATION = re.compile(
    r"(?s)failed to run FX node with fake tensors: call_\w+ "
    r"(?:<(?:built-in )?(?:function|method) )?([\w.]+).*?\(.*?: got ([^\n]*)"
)
#: Dynamo's text where Python raises a `NameError`; elsewhere it says that the code may raise.
_UNKNOWN_NAME = "failed to find name in frame builtins"
#: The code calls a plain value, such as a layer that is None.
_NOT_CALLABLE = re.compile(r"(?s)\AUnsupported function call\n.*call_function ConstantVariable\(")
#: Exceptions of operators and builtins for wrong arguments.
_BY_ARGUMENTS: tuple[type[Exception], ...] = (
    ArithmeticError,
    AssertionError,
    IndexError,
    KeyError,
    RuntimeError,
    TypeError,
    ValueError,
)
_NAMES = tuple(f"{kind.__name__}(" for kind in (*_BY_ARGUMENTS, ZeroDivisionError, OverflowError, NotImplementedError))
_ENDS = ("RETURN_VALUE", "RETURN_CONST", "YIELD_VALUE", "YIELD_FROM")


def is_raised_by_method(error: BaseException) -> bool:
    """Return whether an error of Dynamo's says that the traced code raises an exception without catching it."""
    text = str(error)
    if text.startswith("Data-dependent assertion failed"):
        return "ConstantVariable(bool: False)" in text  # conditions on a tensor's value become operators
    if text.startswith(("Observed exception", "Assertion failed on symbolic shapes", _UNKNOWN_NAME)):
        return True
    from torch._dynamo.graph_break_hints import USER_ERROR

    if any(hint in text for hint in USER_ERROR):
        return True
    return _NOT_CALLABLE.match(text) is not None or _is_of_operation(error) or is_about_to_raise(error)


def is_raised_by_arguments(error: BaseException) -> bool:
    """Return whether an exception from Dynamo is of a kind that operators and builtins raise for wrong arguments."""
    return isinstance(error, _BY_ARGUMENTS) and not isinstance(error, (NotImplementedError, RecursionError))


def _is_of_operation(error: BaseException) -> bool:
    """Return whether an operation raises for the tensors of the call, as it would without a trace."""
    text = str(getattr(error, "inner_exception", error)).strip()
    failed = FAILED_OPERATION.search(text)
    if text.startswith("TypeError when making fake tensor call"):
        return True
    return failed is not None and (failed[2].startswith(_NAMES) or _is_users(error))


def _is_users(error: BaseException | None) -> bool:
    """Return whether an error was caused by an exception whose class is neither torch's nor Python's."""
    while error is not None:
        if module_of(type(error)).partition(".")[0] not in ("torch", "gearcache", "builtins"):
            return True
        error = error.__cause__ or error.__context__
    return False


def is_about_to_raise(error: BaseException) -> bool:
    """Return whether Dynamo stops in a function that can only raise: it makes the exception, or its text."""
    return any(_can_only_raise(translator) for translator in _translators(error))


def _translators(error: BaseException) -> Iterator[Any]:
    """Yield the tracers of the functions that an error passed through, the outermost first."""
    from torch._dynamo.symbolic_convert import InstructionTranslatorBase

    last, trace = None, error.__traceback__
    while trace is not None:
        tracer = trace.tb_frame.f_locals.get("self")
        if isinstance(tracer, InstructionTranslatorBase) and tracer is not last:
            yield tracer
            last = tracer
        trace = trace.tb_next


def _can_only_raise(translator: Any) -> bool:
    """Return whether the current instruction is of a `raise` that the function does not catch: no jump comes before."""
    instructions, pointer = translator.instructions, translator.instruction_pointer
    if pointer is None:
        return False
    if sys.version_info < (3, 11) and translator.block_stack:  # a handler around it, which no table names
        return False
    place = pointer - 1
    while (instruction := instructions[place]).target is None and instruction.opname not in _ENDS:
        place += 1
        if instruction.opname in ("RAISE_VARARGS", "RERAISE"):
            if instruction.exn_tab_entry is None:
                return True
            place = instructions.index(instruction.exn_tab_entry.target)  # its handler is next
    return False
