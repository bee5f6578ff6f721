"""What surrounds a program: arguments, environment, settings, time, files, threads."""

import contextvars
import importlib
import locale
import logging
import os
import platform
import random
import sys
import threading
import time
import weakref

import torch
from fact import Fact

CONTEXT = contextvars.ContextVar("CONTEXT", default=2.0)
LOCAL = threading.local()
LOCAL.value = 2.0
LOGGER = logging.getLogger("process.facts")
COUNTS = {"calls": 2}


class Counter:
    count = 2


class Target:
    value = 2.0


TARGET = Target()
REFERENCE = weakref.ref(TARGET)


class TheArguments(Fact):
    def run(self, x):
        return x * len(sys.argv)

    def change(self, patch):
        patch(sys, "argv", ["a"] * 7)


class AModuleIsImported(Fact):
    def run(self, x):
        return x * 2 if "colorsys" in sys.modules else x * 3

    def change(self, patch):
        import colorsys

        patch.callback(sys.modules.pop, colorsys.__name__)


class AModuleIsLookedUp(Fact):
    def run(self, x):
        return x * 2 if importlib.util.find_spec("no_such_module") else x * 3


class AnOptionalImport(Fact):
    def run(self, x):
        try:
            import no_such_module

            return x * no_such_module.value
        except ImportError:
            return x * 3

    def change(self, patch):
        import types

        module = types.ModuleType("no_such_module")
        module.value = 7.0
        patch.item(sys.modules, "no_such_module", module)


class AnImportInsideTheMethod(Fact):
    def run(self, x):
        import string

        return x * len(string.digits)

    def change(self, patch):
        import string

        patch(string, "digits", "1234567")


class TheVersionOfTorch(Fact):
    def run(self, x):
        return x * 2 if torch.__version__ >= "2.0" else x * 3

    def change(self, patch):
        patch(torch, "__version__", "1.0")


class ThePlatform(Fact):
    def run(self, x):
        return x * 2 if sys.platform == "linux" else x * 3

    def change(self, patch):
        patch(sys, "platform", "darwin")


class TheByteOrder(Fact):
    def run(self, x):
        return x * len(sys.byteorder)

    def change(self, patch):
        patch(sys, "byteorder", "seven")


class TheRecursionLimit(Fact):
    def run(self, x):
        return x * sys.getrecursionlimit()

    def change(self, patch):
        patch.callback(sys.setrecursionlimit, sys.getrecursionlimit())
        sys.setrecursionlimit(1777)


class TheHashSeed(Fact):
    def run(self, x):
        return x * 2 if os.environ.get("PYTHONHASHSEED") == "0" else x * 3


class TheWorkingFolder(Fact):
    def run(self, x):
        return x * len(os.getcwd())

    def change(self, patch):
        patch.callback(os.chdir, os.getcwd())
        os.chdir("/usr/lib")


class ThePathSeparator(Fact):
    def run(self, x):
        return x * len(os.sep)

    def change(self, patch):
        patch(os, "sep", "seven77")


class TheCountOfProcessors(Fact):
    def run(self, x):
        return x * os.cpu_count()

    def change(self, patch):
        patch(os, "cpu_count", lambda: 77)


class TheProcess(Fact):
    def run(self, x):
        return x * os.getpid()


class TheTime(Fact):
    def run(self, x):
        return x * int(time.time() > 5e9) + 1

    def change(self, patch):
        patch(time, "time", lambda: 6e9)


class ARandomNumber(Fact):
    def run(self, x):
        return x * (1 + random.randint(0, 0))

    def change(self, patch):
        patch(random, "randint", lambda a, b: 7)


class ARandomGenerator(Fact):
    def __init__(self):
        super().__init__()
        self.random = random.Random(3)

    def run(self, x):
        return x * self.random.random()


class TheLocale(Fact):
    def run(self, x):
        return x * 2 if locale.getlocale()[0] is None else x * 3

    def change(self, patch):
        before = locale.setlocale(locale.LC_CTYPE)
        patch.callback(locale.setlocale, locale.LC_CTYPE, before)
        locale.setlocale(locale.LC_CTYPE, "C.UTF-8" if locale.getlocale()[0] is None else "C")


class ThePlatformsName(Fact):
    def run(self, x):
        return x * len(platform.system())

    def change(self, patch):
        patch(platform, "system", lambda: "sevenxx")


class ALogLevel(Fact):
    def run(self, x):
        return x * 2 if LOGGER.isEnabledFor(logging.DEBUG) else x * 3

    def change(self, patch):
        patch.callback(LOGGER.setLevel, LOGGER.level)
        LOGGER.setLevel(logging.DEBUG)


class ALogLevelAsANumber(Fact):
    def run(self, x):
        return x * LOGGER.getEffectiveLevel()

    def change(self, patch):
        patch.callback(LOGGER.setLevel, LOGGER.level)
        LOGGER.setLevel(7)


class ALoggerIsDisabled(Fact):
    def run(self, x):
        return x * 2 if LOGGER.disabled else x * 3

    def change(self, patch):
        patch(LOGGER, "disabled", True)


class AContextVariable(Fact):
    def run(self, x):
        return x * CONTEXT.get()

    def change(self, patch):
        patch.callback(CONTEXT.reset, CONTEXT.set(7.0))


class AThreadLocal(Fact):
    def run(self, x):
        return x * LOCAL.value

    def change(self, patch):
        patch(LOCAL, "value", 7.0)


class AThreadLocalAppears(Fact):
    def run(self, x):
        return x * getattr(LOCAL, "other", 2.0)

    def change(self, patch):
        patch(LOCAL, "other", 7.0)


class AWeakReference(Fact):
    def run(self, x):
        target = REFERENCE()
        return x * 3 if target is None else x * target.value

    def change(self, patch):
        patch(TARGET, "value", 7.0)


class AWeakReferenceToAnother(Fact):
    def run(self, x):
        target = REFERENCE()
        return x * 3 if target is None else x * target.value

    def change(self, patch):
        patch(sys.modules[__name__], "REFERENCE", weakref.ref(Target()))


class AClassCounter(Fact):
    def run(self, x):
        return x * Counter.count

    def change(self, patch):
        patch(Counter, "count", 7)


class ACountOfADictionary(Fact):
    def run(self, x):
        return x * COUNTS["calls"]

    def change(self, patch):
        patch.item(COUNTS, "calls", 7)


class AGlobalStatement(Fact):
    def run(self, x):
        return x * globals().get("GAIN", 2.0)

    def change(self, patch):
        patch(sys.modules[__name__], "GAIN", 7.0)


class AModulesAttribute(Fact):
    def run(self, x):
        return x * getattr(sys.modules["surroundings"], "GAIN", 2.0)

    def change(self, patch):
        patch(sys.modules[__name__], "GAIN", 7.0)


class AModulesMissingAttribute(Fact):
    def run(self, x):
        return x * 2 if hasattr(string_module, "gain") else x * 3

    def change(self, patch):
        patch(string_module, "gain", 7.0)


class AModulesGetattr(Fact):
    def run(self, x):
        return x * getattr(string_module, "gain", 2.0)

    def change(self, patch):
        patch(string_module, "__getattr__", lambda name: 7.0)


import string as string_module


class ThreadsOfTorch(Fact):
    def run(self, x):
        return x * torch.get_num_threads()


class TheCountOfDevices(Fact):
    def run(self, x):
        return x * (1 + torch.cuda.device_count())

    def change(self, patch):
        patch(torch.cuda, "device_count", lambda: 6)


class TheDefaultDtype(Fact):
    def run(self, x):
        return x * 2 if torch.get_default_dtype() is torch.float32 else x * 3

    def change(self, patch):
        patch.callback(torch.set_default_dtype, torch.float32)
        torch.set_default_dtype(torch.float64)


class AFlagOfABackend(Fact):
    def run(self, x):
        return x * 2 if torch.backends.cudnn.benchmark else x * 3

    def change(self, patch):
        patch.callback(setattr, torch.backends.cudnn, "benchmark", torch.backends.cudnn.benchmark)
        torch.backends.cudnn.benchmark = True


class AFlagOfABackendOutsideTheKey(Fact):
    def run(self, x):
        return x * 2 if torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction else x * 3

    def change(self, patch):
        flags = torch.backends.cuda.matmul
        patch.callback(
            setattr, flags, "allow_fp16_reduced_precision_reduction", flags.allow_fp16_reduced_precision_reduction
        )
        flags.allow_fp16_reduced_precision_reduction = not flags.allow_fp16_reduced_precision_reduction


class AQueryOfTorch(Fact):
    def run(self, x):
        return x * 2 if torch.backends.mkldnn.is_available() else x * 3

    def change(self, patch):
        patch(torch.backends.mkldnn, "is_available", lambda: False)


class FlashAttentionIsEnabled(Fact):
    def run(self, x):
        return x * 2 if torch.backends.cuda.flash_sdp_enabled() else x * 3


class DeterministicFill(Fact):
    def run(self, x):
        return x * 2 if torch.utils.deterministic.fill_uninitialized_memory else x * 3

    def change(self, patch):
        patch.callback(setattr, torch.utils.deterministic, "fill_uninitialized_memory", True)
        torch.utils.deterministic.fill_uninitialized_memory = False


class TheSeed(Fact):
    def run(self, x):
        return x * (torch.initial_seed() % 7 + 1)

    def change(self, patch):
        patch.callback(torch.manual_seed, torch.initial_seed())
        torch.manual_seed(4)


class AFileIsRead(Fact):
    def run(self, x):
        return x * 2 if os.path.exists("/nowhere") else x * 3

    def change(self, patch):
        patch(os.path, "exists", lambda path: True)


class AnEnvironmentVariable(Fact):
    def run(self, x):
        return x * float(os.environ.get("PROCESS_FACT", "2"))

    def change(self, patch):
        patch.item(os.environ, "PROCESS_FACT", "7")


class TheEnvironmentsSize(Fact):
    def run(self, x):
        return x * len([name for name in os.environ if name.startswith("PROCESS_FACT")])

    def change(self, patch):
        patch.item(os.environ, "PROCESS_FACT", "7")


class TheEnvironmentAsADictionary(Fact):
    def run(self, x):
        return x * float(dict(os.environ).get("PROCESS_FACT", 2))

    def change(self, patch):
        patch.item(os.environ, "PROCESS_FACT", "7")


class CompilingIsAsked(Fact):
    def run(self, x):
        return x * len(sys.flags)

    def change(self, patch):
        pass


class TheThreadsName(Fact):
    def run(self, x):
        return x * len(threading.current_thread().name)

    def change(self, patch):
        patch.callback(setattr, threading.current_thread(), "name", threading.current_thread().name)
        threading.current_thread().name = "seven77"


class TheCountOfThreads(Fact):
    def run(self, x):
        return x * threading.active_count()


class AFloatsInfo(Fact):
    def run(self, x):
        return x * sys.float_info.dig

    def change(self, patch):
        patch(sys, "float_info", type("F", (), {"dig": 7}))


class AnEncoding(Fact):
    def run(self, x):
        return x * len(sys.getfilesystemencoding()) + len(sys.getdefaultencoding())


class AGrowingCache(Fact):
    def run(self, x):
        if "factor" not in COUNTS:
            COUNTS["factor"] = 2
        return x * COUNTS["factor"]

    def change(self, patch):
        patch.item(COUNTS, "factor", 7)
