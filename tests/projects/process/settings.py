"""Torch's own settings that a method reads, or that what it calls reads."""

import torch
from fact import Fact


class AutocastDtypeOfARegion(Fact):
    def run(self, x):
        with torch.autocast("cpu"):
            return (x.reshape(-1, 1) @ x.reshape(1, -1)) * 1.001

    def change(self, patch):
        patch.callback(torch.set_autocast_dtype, "cpu", torch.get_autocast_dtype("cpu"))
        torch.set_autocast_dtype("cpu", torch.float16)


class AutocastDtypeOfARegionByCall(AutocastDtypeOfARegion):
    def run(self, x):
        with torch.autocast("cpu", dtype=torch.get_autocast_dtype("cpu")):
            return (x.reshape(-1, 1) @ x.reshape(1, -1)) * 1.001


class AutocastDtypeThatIsAskedFor(AutocastDtypeOfARegion):
    def run(self, x):
        return x * (3 if torch.get_autocast_dtype("cpu") == torch.bfloat16 else 2)


class AutocastDtypeOfTheCallersRegion(Fact):
    def run(self, x):
        with torch.autocast("cpu"):
            return (x.reshape(-1, 1) @ x.reshape(1, -1)) * 1.001

    def change(self, patch):
        patch.enter_context(torch.autocast("cpu", torch.float16, enabled=False))


class AutocastOfAnotherDevice(Fact):
    def run(self, x):
        return x * (2 if torch.is_autocast_enabled("cuda") else 3)

    def change(self, patch):
        patch.callback(torch.set_autocast_enabled, "cuda", torch.is_autocast_enabled("cuda"))
        torch.set_autocast_enabled("cuda", True)


class AutocastOfAnyDevice(AutocastOfAnotherDevice):
    def run(self, x):
        return x * (2 if torch.is_autocast_enabled() else 3)


class AutocastCache(Fact):
    def run(self, x):
        return x * (2 if torch.is_autocast_cache_enabled() else 3)

    def change(self, patch):
        patch.callback(torch.set_autocast_cache_enabled, torch.is_autocast_cache_enabled())
        torch.set_autocast_cache_enabled(False)


class OverwrittenParameters(Fact):
    def run(self, x):
        return x * (2 if torch.__future__.get_overwrite_module_params_on_conversion() else 3)

    def change(self, patch):
        patch.callback(torch.__future__.set_overwrite_module_params_on_conversion, False)
        torch.__future__.set_overwrite_module_params_on_conversion(True)


class Precision(Fact):
    def run(self, x):
        return x * len(torch.get_float32_matmul_precision())

    def change(self, patch):
        patch.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
        torch.set_float32_matmul_precision("high")


class WorldSize(Fact):
    def run(self, x):
        distributed = torch.distributed
        return x / (distributed.get_world_size() if distributed.is_initialized() else 1)

    def change(self, patch):
        from torch.testing._internal.distributed.fake_pg import FakeStore

        torch.distributed.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
        patch.callback(torch.distributed.destroy_process_group)


class ASettingOfTheCompilerThatIsRead(Fact):
    """As functional collectives do since torch 2.14."""

    def run(self, x):
        return x * (3 if torch.compiler.config.job_id is None else 2)

    def change(self, patch):
        patch.enter_context(torch.compiler.config.patch(job_id="another"))
