"""What surrounds a program: arguments, environment, settings, time, files, threads."""

import contextvars
import importlib
import locale
import logging
import os
import platform
import random
import string as string_module
import sys
import threading
import time
import weakref

import torch

from tests.cases.case import case

CONTEXT = contextvars.ContextVar("CONTEXT", default=2.0)
LOCAL = threading.local()
LOCAL.value = 2.0
LOGGER = logging.getLogger("process.facts")
COUNTS = {"calls": 2}


class Target:
    value = 2.0


TARGET = Target()
REFERENCE = weakref.ref(TARGET)


@case(patched=(sys, "argv", ["a"] * 7))
def the_arguments(self, x):
    return x * len(sys.argv)


@case()
def a_module_is_imported(self, x):
    return x * 2 if "colorsys" in sys.modules else x * 3


@a_module_is_imported.changed
def _(self, patch):
    import colorsys

    patch.callback(sys.modules.pop, colorsys.__name__)


@case()
def an_optional_import(self, x):
    try:
        import no_such_module

        return x * no_such_module.value
    except ImportError:
        return x * 3


@an_optional_import.changed
def _(self, patch):
    import types

    module = types.ModuleType("no_such_module")
    module.value = 7.0
    patch.item(sys.modules, "no_such_module", module)


@case()
def an_import_inside_the_method(self, x):
    import string

    return x * len(string.digits)


@an_import_inside_the_method.changed
def _(self, patch):
    import string

    patch(string, "digits", "1234567")


@case(patched=(torch, "__version__", "1.0"))
def the_version_of_torch(self, x):
    return x * 2 if torch.__version__ >= "2.0" else x * 3


@case(patched=(sys, "platform", "darwin"))
def the_platform(self, x):
    return x * 2 if sys.platform == "linux" else x * 3


@case(change=lambda self, patch: patch.by(sys.setrecursionlimit, 1777, sys.getrecursionlimit()))
def the_recursion_limit(self, x):
    return x * sys.getrecursionlimit()


@case()
def the_hash_seed(self, x):
    return x * 2 if os.environ.get("PYTHONHASHSEED") == "0" else x * 3


@case(change=lambda self, patch: patch.by(os.chdir, "/usr/lib", os.getcwd()))
def the_working_folder(self, x):
    return x * len(os.getcwd())


@case(patched=(os, "cpu_count", lambda: 77))
def the_count_of_processors(self, x):
    return x * os.cpu_count()


@case()
def the_process(self, x):
    return x * os.getpid()


@case(patched=(time, "time", lambda: 6e9))
def the_time(self, x):
    return x * int(time.time() > 5e9) + 1


@case(patched=(random, "randint", lambda a, b: 7))
def a_random_number(self, x):
    return x * (1 + random.randint(0, 0))


@case(random=lambda: random.Random(3))
def a_random_generator(self, x):
    return x * self.random.random()


@case()
def the_locale(self, x):
    return x * 2 if locale.getlocale()[0] is None else x * 3


@the_locale.changed
def _(self, patch):
    before = locale.setlocale(locale.LC_CTYPE)
    patch.callback(locale.setlocale, locale.LC_CTYPE, before)
    locale.setlocale(locale.LC_CTYPE, "C.UTF-8" if locale.getlocale()[0] is None else "C")


@case(patched=(platform, "system", lambda: "sevenxx"))
def the_platforms_name(self, x):
    return x * len(platform.system())


@case(change=lambda self, patch: patch.by(LOGGER.setLevel, logging.DEBUG, LOGGER.level))
def a_log_level(self, x):
    return x * 2 if LOGGER.isEnabledFor(logging.DEBUG) else x * 3


@case(change=lambda self, patch: patch.by(LOGGER.setLevel, 7, LOGGER.level))
def a_log_level_as_a_number(self, x):
    return x * LOGGER.getEffectiveLevel()


@case(patched=(LOGGER, "disabled", True))
def a_logger_is_disabled(self, x):
    return x * 2 if LOGGER.disabled else x * 3


@case(change=lambda self, patch: patch.callback(CONTEXT.reset, CONTEXT.set(7.0)))
def a_context_variable(self, x):
    return x * CONTEXT.get()


@case(patched=(LOCAL, "value", 7.0))
def a_thread_local(self, x):
    return x * LOCAL.value


@case(patched=(LOCAL, "other", 7.0))
def a_thread_local_appears(self, x):
    return x * getattr(LOCAL, "other", 2.0)


@case(patched=(TARGET, "value", 7.0))
def a_weak_reference(self, x):
    target = REFERENCE()
    return x * 3 if target is None else x * target.value


@case(patched=(sys.modules[__name__], "REFERENCE", weakref.ref(Target())))
def a_weak_reference_to_another(self, x):
    target = REFERENCE()
    return x * 3 if target is None else x * target.value


@case(patched=(sys.modules[__name__], "GAIN", 7.0))
def a_global_statement(self, x):
    return x * globals().get("GAIN", 2.0)


@case(patched=(sys.modules[__name__], "GAIN", 7.0))
def a_modules_attribute(self, x):
    return x * getattr(sys.modules["tests.cases.of_surroundings"], "GAIN", 2.0)


@case(patched=(string_module, "gain", 7.0))
def a_modules_missing_attribute(self, x):
    return x * 2 if hasattr(string_module, "gain") else x * 3


@case(patched=(string_module, "__getattr__", lambda name: 7.0))
def a_modules_getattr(self, x):
    return x * getattr(string_module, "gain", 2.0)


@case()
def threads_of_torch(self, x):
    return x * torch.get_num_threads()


@case(patched=(torch.cuda, "device_count", lambda: 6))
def the_count_of_devices(self, x):
    return x * (1 + torch.cuda.device_count())


@case(change=lambda self, patch: patch.by(torch.set_default_dtype, torch.float64, torch.float32))
def the_default_dtype(self, x):
    return x * 2 if torch.get_default_dtype() is torch.float32 else x * 3


@case()
def a_flag_of_a_backend(self, x):
    return x * 2 if torch.backends.cudnn.benchmark else x * 3


@a_flag_of_a_backend.changed
def _(self, patch):
    patch.callback(setattr, torch.backends.cudnn, "benchmark", torch.backends.cudnn.benchmark)
    torch.backends.cudnn.benchmark = True


@case(refused=False)
def a_flag_of_a_backend_outside_the_key(self, x):
    return x * 2 if torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction else x * 3


@a_flag_of_a_backend_outside_the_key.changed
def _(self, patch):
    flags = torch.backends.cuda.matmul
    patch.callback(
        setattr, flags, "allow_fp16_reduced_precision_reduction", flags.allow_fp16_reduced_precision_reduction
    )
    flags.allow_fp16_reduced_precision_reduction = not flags.allow_fp16_reduced_precision_reduction


@case(patched=(torch.backends.mkldnn, "is_available", lambda: False))
def a_query_of_torch(self, x):
    return x * 2 if torch.backends.mkldnn.is_available() else x * 3


@case()
def deterministic_fill(self, x):
    return x * 2 if torch.utils.deterministic.fill_uninitialized_memory else x * 3


@deterministic_fill.changed
def _(self, patch):
    patch.callback(setattr, torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.utils.deterministic.fill_uninitialized_memory = False


@case(change=lambda self, patch: patch.by(torch.manual_seed, 4, torch.initial_seed()))
def the_seed(self, x):
    return x * (torch.initial_seed() % 7 + 1)


@case(patched=(os.path, "exists", lambda path: True))
def a_file_is_read(self, x):
    return x * 2 if os.path.exists("/nowhere") else x * 3


@case(change=lambda self, patch: patch.item(os.environ, "PROCESS_FACT", "7"))
def an_environment_variable(self, x):
    return x * float(os.environ.get("PROCESS_FACT", "2"))


@case(change=lambda self, patch: patch.item(os.environ, "PROCESS_FACT", "7"))
def the_environments_size(self, x):
    return x * len([name for name in os.environ if name.startswith("PROCESS_FACT")])


@case(change=lambda self, patch: patch.item(os.environ, "PROCESS_FACT", "7"))
def the_environment_as_a_dictionary(self, x):
    return x * float(dict(os.environ).get("PROCESS_FACT", 2))


@case()
def the_threads_name(self, x):
    return x * len(threading.current_thread().name)


@the_threads_name.changed
def _(self, patch):
    patch.callback(setattr, threading.current_thread(), "name", threading.current_thread().name)
    threading.current_thread().name = "seven77"


@case(change=lambda self, patch: patch.item(COUNTS, "factor", 7))
def a_growing_cache(self, x):
    if "factor" not in COUNTS:
        COUNTS["factor"] = 2
    return x * COUNTS["factor"]
