"""Names that other code uses: gearcache's own, builtins, and odd ones. All are legal for a user's variables."""

from __future__ import annotations

import ast
import builtins
import functools
import keyword
import random
from pathlib import Path

import gearcache

#: Names that the generated text itself reads.
NEEDED = frozenset(
    "self torch super cached math functools operator os abc enum dataclasses collections typing s m run tensor copy "
    "Model getattr setattr hasattr isinstance len list dict tuple set float int str bool type zip range enumerate sum "
    "sorted hash id print any all iter next min max abs round map filter reversed object property staticmethod "
    "classmethod vars callable bytes divmod pow repr slice frozenset ValueError KeyError RuntimeError Exception "
    "__debug__ __name__".split()
)
_ODD = (
    "_ __ ___ e x0 arg0 args kwargs frame miss graph table state state0 ok check checks sizes n0 s0 g0 k0 i j tensor0 "
    "self_ instance cls größe 变量 ß ª l O I L_ L_x_ G_x __closure __builtins __compiled_fn_1 __resume_at_0 f_locals "
    "torch_ inputs outputs call dispatch result results value values found key keys name names match case type_ data "
    "module modules function code co_code globals_ locals_ builtins_ _0 _1 _x __x __self__ __name_ mro hit missed "
    "modules parameters buffers named_modules named_parameters named_buffers children apply state_dict half eval train "
    "copy_ counter gear gears variant variants static fill fills error errors none true nan inf"
).split()


@functools.cache
def own_names() -> tuple[str, ...]:
    """Return the identifiers in gearcache's sources on the path of a call."""
    folder = Path(gearcache.__file__).parent
    found: set[str] = set()
    for file in [
        *folder.glob("*.py"),
        *(part for name in ("guards", "ge_cache", "serving") for part in (folder / name).glob("**/*.py")),
    ]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.arg):
                found.add(node.arg)
    return tuple(sorted(name for name in found if not keyword.iskeyword(name)))


@functools.cache
def _builtins() -> tuple[str, ...]:
    return tuple(sorted(name for name in dir(builtins) if name.isidentifier() and not keyword.iskeyword(name)))


def odd(chance: random.Random) -> str:
    """Return one of the names."""
    return chance.choice(chance.choice([_ODD, own_names(), _builtins()]))
