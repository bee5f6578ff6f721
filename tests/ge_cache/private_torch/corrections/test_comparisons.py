"""What a method compares: as Python does, also with sizes that are symbols, or refused."""

from __future__ import annotations

import enum
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import gearcache


class Equal:
    """Equal to everything, with a hash of its own."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1


class Text(str, enum.Enum):
    """A text that is equal to everything."""

    ANY = "any"
    __eq__, __hash__ = Equal.__eq__, Equal.__hash__


class Meta(type):
    def __eq__(cls, other: object) -> bool:
        return True

    def __hash__(cls) -> int:
        return 1


class OfMeta(metaclass=Meta):
    pass


def listed(*items: Any) -> list[Any]:
    return list(items)


#: Expressions of `x` (3, 4), `n = x.shape[0]`, `o` (`Equal`), `m` (the module); those that start with `!` are refused.
#: In one trace go those alone that compare no size.
EXPRESSIONS = """
(1 in [o], 1 in (o,), o in [1], [1] in [[o]], (1,) in [(o,)], None in [o], 1 in {'a': o}.values())
! 1 in {o: 2} | ! 1 in [x[0, 0]] | ! 'a' in [x[0, 0].numpy()]
(x in [x], x in (None, x), x in ['a']) | ! x in [x + 1] | ! x in [Text.ANY]
3 in x.shape | (3, 4) == x.shape | (n > 3) == 0 | [n > 3] == [0] | bool(n) is True | (x.shape == (3, 4)) is True
n == 3 + 0j | round(n * 17, -2) | max([n, 3.0]) | max(n, n / 2) | ! max(x[0, 0], n)
(listed(*range(1, 7, 2)), listed(*range(4)), listed(0, *range(3)), [*range(1, 4)]) | listed(*range(n))
! m.run is m.run | ! x.device is x.device | ! OfMeta == 1
"""


def _expressions() -> Iterator[Any]:
    for text in EXPRESSIONS.replace("\n", " | ").split(" | "):
        text = text.strip()
        if text:
            yield pytest.param(text.lstrip("! "), text.startswith("!"), id=text.lstrip("! "))


@pytest.mark.parametrize(("expression", "is_refused"), list(_expressions()))
def test_an_expression_has_the_value_that_python_gives_it(
    expression: str, is_refused: bool, tmp_path: pathlib.Path
) -> None:
    space: dict[str, Any] = {"listed": listed, "OfMeta": OfMeta, "Text": Text}
    source = f"def run(m, x):\n    o, n = m.o, x.shape[0]\n    return x * 1, {expression}\n"
    exec(source, space)  # noqa: S102
    cls = type("Model", (torch.nn.Module,), {"run": space["run"]})
    module: Any = cls()
    module.o = Equal()
    config = gearcache.CompilerConfig(backend="eager", strict=True)
    cached = gearcache.cache_compile(module.run, dynamic=True, cache_dir=str(tmp_path), config=config)
    for rows in (3, 5):
        x = torch.ones(rows, 4)
        if is_refused:
            with pytest.raises(gearcache.errors.CaptureError):
                cached(x)
            continue
        (_, found), (_, expected) = cached(x), module.run(x)
        assert (found, type(found), repr(found)) == (expected, type(expected), repr(expected))


class Formatted(torch.nn.Module):
    def forward(self, x: torch.Tensor, n: int) -> Any:
        return (
            f"{n:05d}",
            f"{n:.2f}",
            f"{n}",
            f"{n}{n} of {x.size(0)}",
            n,
        )

    def left_out(self, x: torch.Tensor, n: int) -> Any:
        return f"{n}", 5, x.size(0)


@pytest.mark.parametrize(("name", "dynamic"), [("forward", None), ("left_out", True)])
def test_numbers_are_formatted_as_their_spec_says(name: str, dynamic: bool | None, cache_dir: pathlib.Path) -> None:
    method, config = getattr(Formatted(), name), gearcache.CompilerConfig(backend="eager", strict=True)
    cached = gearcache.cache_compile(method, config=config, dynamic=dynamic)
    for rows, n in ((3, 3), (4, -8), (5, 5)):
        assert cached(torch.ones(rows), n) == method(torch.ones(rows), n)
