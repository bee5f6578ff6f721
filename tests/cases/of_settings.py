"""Torch's own settings that a method reads, or that what it calls reads."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.cases.case import case, texts


@case(
    change=lambda self, patch: patch.by(
        torch.set_autocast_dtype,
        (
            "cpu",
            torch.float16,
        ),
        (
            "cpu",
            torch.get_autocast_dtype("cpu"),
        ),
    )
)
def autocast_dtype_of_a_region(self, x):
    with torch.autocast("cpu"):
        return (x.reshape(-1, 1) @ x.reshape(1, -1)) * 1.001


@case(of=autocast_dtype_of_a_region)
def autocast_dtype_of_a_region_by_call(self, x):
    with torch.autocast("cpu", dtype=torch.get_autocast_dtype("cpu")):
        return (x.reshape(-1, 1) @ x.reshape(1, -1)) * 1.001


@case(of=autocast_dtype_of_a_region)
def autocast_dtype_that_is_asked_for(self, x):
    return x * (3 if torch.get_autocast_dtype("cpu") == torch.bfloat16 else 2)


@case(change=lambda self, patch: patch.enter_context(torch.autocast("cpu", torch.float16, enabled=False)))
def autocast_dtype_of_the_callers_region(self, x):
    with torch.autocast("cpu"):
        return (x.reshape(-1, 1) @ x.reshape(1, -1)) * 1.001


@case(
    change=lambda self, patch: patch.by(
        torch.set_autocast_enabled,
        (
            "cuda",
            True,
        ),
        (
            "cuda",
            torch.is_autocast_enabled("cuda"),
        ),
    )
)
def autocast_of_another_device(self, x):
    return x * (2 if torch.is_autocast_enabled("cuda") else 3)


@case(of=autocast_of_another_device)
def autocast_of_any_device(self, x):
    return x * (2 if torch.is_autocast_enabled() else 3)


@case(change=lambda self, patch: patch.by(torch.set_autocast_cache_enabled, False, torch.is_autocast_cache_enabled()))
def autocast_cache(self, x):
    return x * (2 if torch.is_autocast_cache_enabled() else 3)


@case(change=lambda self, patch: patch.by(torch.__future__.set_overwrite_module_params_on_conversion, True, False))
def overwritten_parameters(self, x):
    return x * (2 if torch.__future__.get_overwrite_module_params_on_conversion() else 3)


@case(
    change=lambda self, patch: patch.by(
        torch.set_float32_matmul_precision, "high", torch.get_float32_matmul_precision()
    )
)
def precision(self, x):
    return x * len(torch.get_float32_matmul_precision())


@case()
def world_size(self, x):
    distributed = torch.distributed
    return x / (distributed.get_world_size() if distributed.is_initialized() else 1)


@world_size.changed
def _(self, patch):
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    patch.callback(torch.distributed.destroy_process_group)


@case(change=lambda self, patch: patch.enter_context(torch.compiler.config.patch(job_id="another")))
def a_setting_of_the_compiler_that_is_read(self, x):
    """As functional collectives do since torch 2.14."""
    return x * (3 if torch.compiler.config.job_id is None else 2)


@case(change=lambda self, patch: patch.by(torch.backends.cuda.enable_flash_sdp, False, True), refused=False)
def kernels_of_attention_in_a_region(self, x):
    attended = torch.sin(x * 7)[None, None]
    with sdpa_kernel(SDPBackend.MATH):
        return torch.nn.functional.scaled_dot_product_attention(attended, attended, attended)


@case(of=kernels_of_attention_in_a_region, refused=False)
def kernels_of_attention_in_a_nested_region(self, x):
    attended = torch.sin(x * 7)[None, None]
    with sdpa_kernel(SDPBackend.MATH):
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], set_priority=True):
            first = x + 1
        return torch.nn.functional.scaled_dot_product_attention(attended, attended, attended) + first


@case(change=lambda self, patch: patch.item(vars(self), "factor", 3.0), factor=lambda: 2.0, refused=False)
def regions_that_a_graph_honours(self, x):
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        return torch.vmap(lambda row: row * self.factor)(x)


#: Each sets what is set already, as the trace of a refused method does that too.
SWITCHES = texts(
    kernels_of_attention_in_a_region,
    {
        "the_default_dtype": (
            "torch.set_default_dtype(torch.float32)\nreturn x + torch.ones(4)",
            r"it calls `torch\.set_default_dtype`.*pass `dtype=`",
        ),
        "the_kernels_of_attention": (
            "torch.backends.cuda.enable_flash_sdp(True)\nreturn x + 1",
            r"it calls `torch\.backends\.cuda\.enable_flash_sdp`",
        ),
        "the_precision": (
            "torch.set_float32_matmul_precision('highest')\nreturn x + 1",
            r"it calls `torch\.set_float32_matmul_precision`.*call it around the call of the cached method",
        ),
        "determinism": (
            "torch.use_deterministic_algorithms(False)\nreturn x + 1",
            r"it calls `torch\._C\._set_deterministic_algorithms`",
        ),
        "autocast_for_good": (
            "torch.set_autocast_enabled('cpu', False)\nreturn x + 1",
            r"it calls `torch\.set_autocast_enabled`",
        ),
        "an_attribute_that_calls": (
            "torch.backends.cuda.matmul.allow_tf32 = False\nreturn x + 1",
            r"it calls `torch\._C\._set_cublas_allow_tf32`",
        ),
        "an_attribute_of_a_module": (
            "torch.backends.cudnn.benchmark = False\nreturn x + 1",
            r"it sets `torch\.backends\.cudnn\.benchmark`.*set it around",
        ),
    },
)
