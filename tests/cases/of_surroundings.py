"""What surrounds a program: arguments, environment, settings, time, files, threads."""

import contextlib
import importlib.metadata
import importlib.util
import inspect
import logging
import os
import pathlib
import platform
import random
import string
import sys
import tempfile
import threading
import time
import types
import weakref

import torch

from tests.cases.case import Case, case, changed, put, texts

HERE = sys.modules[__name__]
LOCAL = threading.local()
LOCAL.value = 2.0
LOGGER = logging.getLogger("process.facts")
COUNTS = {"calls": 2}


class Target:
    value = 2.0


TARGET = Target()
REFERENCE = weakref.ref(TARGET)


class Net(Case):
    def __init__(self):
        super().__init__()
        self.random = random.Random(3)
        self.context = contextlib.nullcontext()
        self.information = torch.finfo(torch.float16)
        self.signature = inspect.signature(lambda a, b=2: a)


def with_variable(self, patch):
    patch.item(os.environ, "PROCESS_FACT", "7")


def with_another_module(self, patch):
    import colorsys

    patch.callback(sys.modules.pop, colorsys.__name__)


def with_an_optional_module(self, patch):
    module = types.ModuleType("no_such_module")
    module.value = 7.0
    patch.item(sys.modules, "no_such_module", module)


def with_an_installed_module(self, patch):
    module = types.ModuleType("no_such_module")
    module.__spec__ = importlib.util.spec_from_loader("no_such_module", None)
    patch.item(sys.modules, "no_such_module", module)


def with_another_version(self, patch):
    folder = patch.enter_context(tempfile.TemporaryDirectory())
    information = pathlib.Path(folder, "msgspec-99.0.dist-info")
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: msgspec\nVersion: 99.0\n")
    patch(sys, "path", [folder, *sys.path])


def set_of_backend(flags, name):
    """Return the change that gives a flag of a backend, which is no plain attribute, its other value."""

    def change(self, patch):
        patch.callback(setattr, flags, name, getattr(flags, name))
        setattr(flags, name, not getattr(flags, name))

    return change


#: What differs from process to process, also where nothing is changed.
PROCESS = changed(
    Net,
    {
        "the arguments": ("return x * len(sys.argv)", put(sys, "argv", ["a"] * 7)),
        "the platform": ("return x * 2 if sys.platform == 'linux' else x * 3", put(sys, "platform", "darwin")),
        "the process": ("return x * os.getpid()", lambda self, patch: None),
        "the time": ("return x * int(time.time() > 5e9) + 1", put(time, "time", lambda: 6e9)),
        "a random number": ("return x * (1 + random.randint(0, 0))", put(random, "randint", lambda a, b: 7)),
        "an environment variable": ("return x * float(os.environ.get('PROCESS_FACT', '2'))", with_variable),
        "the environment as a dictionary": ("return x * float(dict(os.environ).get('PROCESS_FACT', 2))", with_variable),
        "a level of logging": (
            "return x * 2 if LOGGER.isEnabledFor(logging.DEBUG) else x * 3",
            lambda self, patch: patch.by(LOGGER.setLevel, logging.DEBUG, LOGGER.level),
        ),
    },
)
LOGGERS = texts(
    Net,
    {
        "a level that is set": (
            "LOGGER.setLevel(10)\nreturn x",
            "it calls `setLevel` of the logger `process.facts`",
        ),
        "a level that is asked for": (
            "return x * 2 if LOGGER.isEnabledFor(logging.DEBUG) else x * 3",
            "it calls `isEnabledFor` of the logger `process.facts`, of which no graph follows",
        ),
        "an attribute of a logger": ("return x + LOGGER.level", "it reads `level` of the logger `process.facts`"),
    },
)
MODULES = changed(
    Net,
    {
        "a module is imported": ("return x * 2 if 'colorsys' in sys.modules else x * 3", with_another_module),
        "an optional import": (
            "try:\n    import no_such_module\n    return x * no_such_module.value\nexcept ImportError:\n    return x * 3",
            with_an_optional_module,
        ),
        "an installed module": (
            "return x * 2 if importlib.util.find_spec('no_such_module') is None else x * 3",
            with_an_installed_module,
        ),
        "the version of a package": (
            "return x * float(importlib.metadata.version('msgspec').split('.')[0])",
            with_another_version,
        ),
        "a default of a signature": (
            "return x * 2 if self.signature.parameters['b'].default == 2 else x * 3",
            lambda self, patch: patch(self, "signature", inspect.signature(lambda a, b=3: a)),
        ),
        "a kind of a signature": (
            "return x * 2 if self.signature.parameters['b'].kind is inspect.Parameter.KEYWORD_ONLY else x * 3",
            lambda self, patch: patch(self, "signature", inspect.signature(lambda a, *, b=2: a)),
        ),
        "what a context gives": (
            "with self.context as value:\n    return x * (2.0 if value is None else value)",
            lambda self, patch: patch(self, "context", contextlib.nullcontext(3.0)),
        ),
        "limits of a dtype": (
            "return x.clamp(max=self.information.eps)",
            lambda self, patch: patch(self, "information", torch.finfo(torch.float32)),
        ),
        "a constant of an imported module": (
            "import string\nreturn x * len(string.digits)",
            put(string, "digits", "1234567"),
        ),
        "a global by its name": ("return x * globals().get('GAIN', 2.0)", put(HERE, "GAIN", 7.0)),
        "an attribute of a module": (
            "return x * getattr(sys.modules['tests.cases.of_surroundings'], 'GAIN', 2.0)",
            put(HERE, "GAIN", 7.0),
        ),
        "an attribute of a module appears": (
            "return x * 2 if hasattr(string, 'gain') else x * 3",
            put(string, "gain", 7.0),
        ),
        "a getattr of a module": (
            "return x * getattr(string, 'gain', 2.0)",
            put(string, "__getattr__", lambda name: 7.0),
        ),
        "a value of a thread": ("return x * LOCAL.value", put(LOCAL, "value", 7.0)),
        "another weak reference": (
            "target = REFERENCE()\nreturn x * 3 if target is None else x * target.value",
            put(HERE, "REFERENCE", weakref.ref(Target())),
        ),
    },
)
TORCH = changed(
    Net,
    {
        "the version of torch": (
            "return x * 2 if torch.__version__ >= '2.0' else x * 3",
            put(torch, "__version__", "1.0"),
        ),
        "the count of devices": (
            "return x * (1 + torch.cuda.device_count())",
            put(torch.cuda, "device_count", lambda: 6),
        ),
        "the default dtype": (
            "return x * 2 if torch.get_default_dtype() is torch.float32 else x * 3",
            lambda self, patch: patch.by(torch.set_default_dtype, torch.float64, torch.float32),
        ),
    },
)
#: Whether they are in the key or not.
FLAGS = changed(
    Net,
    {
        "a flag of a backend": (
            "return x * 2 if torch.backends.cudnn.benchmark else x * 3",
            set_of_backend(torch.backends.cudnn, "benchmark"),
        ),
        "a flag of a backend outside of the key": (
            "return x * 2 if torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction else x * 3",
            set_of_backend(torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction"),
        ),
    },
    refused=False,
)


@case(change=lambda self, patch: patch.item(COUNTS, "factor", 7))
def a_growing_cache(self, x):
    if "factor" not in COUNTS:
        COUNTS["factor"] = 2
    return x * COUNTS["factor"]
