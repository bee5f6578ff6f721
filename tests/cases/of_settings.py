"""Torch's own settings that a method reads, or that what it calls reads."""

import torch

from tests.cases.case import case


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
