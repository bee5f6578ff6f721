"""Torch's own settings that a method reads, or that what it calls reads."""

import contextlib

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.cases.case import Case, changed, texts


class Net(Case):
    factor = 2.0

    def __init__(self):
        super().__init__()
        self.region = torch.autocast("cpu", dtype=torch.bfloat16)
        self.decorated = in_region(True)


def in_region(is_on):
    @torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_on)
    def outer(x):
        return (x.reshape(-1, 1) @ x.reshape(1, -1)) * 1.001

    return outer


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def another_autocast_dtype(self, patch):
    patch.by(torch.set_autocast_dtype, ("cpu", torch.float16), ("cpu", torch.get_autocast_dtype("cpu")))


def autocast_of_another_device(self, patch):
    patch.by(torch.set_autocast_enabled, ("cuda", True), ("cuda", torch.is_autocast_enabled("cuda")))


def four_ranks(self, patch):
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    patch.callback(torch.distributed.destroy_process_group)


READ = changed(
    Net,
    {
        "the dtype of a region of autocast": (
            "with torch.autocast('cpu'):\n    return (x.reshape(-1, 1) @ x.reshape(1, -1)) * 1.001",
            another_autocast_dtype,
        ),
        "the dtype of autocast that is asked for": (
            "return x * (3 if torch.get_autocast_dtype('cpu') == torch.bfloat16 else 2)",
            another_autocast_dtype,
        ),
        "a region that is kept": (
            "with self.region:\n    return (x.reshape(-1, 1) @ x.reshape(1, -1)) * 1.001",
            lambda self, patch: patch(self, "region", torch.autocast("cpu", enabled=False)),
        ),
        "whether a region that is kept is on": (
            "with self.region:\n    return (x.reshape(-1, 1) @ x.reshape(1, -1)) * 1.001",
            lambda self, patch: patch(self.region, "_enabled", False),
        ),
        "a function in a region": (
            "return self.decorated(x)",
            lambda self, patch: patch(self, "decorated", in_region(False)),
        ),
        "autocast of another device": (
            "return x * (2 if torch.is_autocast_enabled('cuda') else 3)",
            autocast_of_another_device,
        ),
        "the precision": (
            "return x * len(torch.get_float32_matmul_precision())",
            lambda self, patch: patch.by(
                torch.set_float32_matmul_precision, "high", torch.get_float32_matmul_precision()
            ),
        ),
        "the count of ranks": (
            "distributed = torch.distributed\n"
            "return x / (distributed.get_world_size() if distributed.is_initialized() else 1)",
            four_ranks,
        ),
        # As functional collectives do since torch 2.14.
        "a setting of the compiler": (
            "return x * (3 if torch.compiler.config.job_id is None else 2)",
            lambda self, patch: patch.enter_context(torch.compiler.config.patch(job_id="another")),
        ),
    },
)
REGIONS = changed(
    Net,
    {
        "kernels of attention in a region": (
            """
            attended = torch.sin(x * 7)[None, None]
            with sdpa_kernel(SDPBackend.MATH):
                return torch.nn.functional.scaled_dot_product_attention(attended, attended, attended)
            """,
            lambda self, patch: patch.by(torch.backends.cuda.enable_flash_sdp, False, True),
        ),
        "regions that a graph honours": (
            """
            with torch.no_grad(), torch.autocast("cpu", enabled=False):
                return torch.vmap(lambda row: row * self.factor)(x)
            """,
            lambda self, patch: patch(self, "factor", 3.0),
        ),
    },
    refused=False,
)
#: Each sets what is set already, as the trace of a refused method does that too.
SWITCHES = texts(
    Net,
    {
        "the default dtype": (
            "torch.set_default_dtype(torch.float32)\nreturn x + torch.ones(4)",
            r"it calls `torch\.set_default_dtype`.*pass `dtype=`",
        ),
        "the default dtype of a region": (
            "with default_dtype(torch.bfloat16):\n    return x * torch.linspace(0, 1, 4)",
            r"it calls `torch\.set_default_dtype`.*pass `dtype=`",
        ),
        "the precision is set": (
            "torch.set_float32_matmul_precision('highest')\nreturn x + 1",
            r"it calls `torch\.set_float32_matmul_precision`.*call it around the call of the cached method",
        ),
        "determinism": (
            "torch.use_deterministic_algorithms(False)\nreturn x + 1",
            r"it calls `torch\._C\._set_deterministic_algorithms`",
        ),
        "an attribute that calls": (
            "torch.backends.cuda.matmul.allow_tf32 = False\nreturn x + 1",
            r"it calls `torch\._C\._set_cublas_allow_tf32`",
        ),
        "an attribute of a module": (
            "torch.backends.cudnn.benchmark = False\nreturn x + 1",
            r"it writes to `benchmark` of the module `torch\.backends\.cudnn`.* around the call",
        ),
    },
)
