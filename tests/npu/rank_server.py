"""What the server has imported that ranks are forked from. Nobody else imports this."""

from __future__ import annotations

import torch._dynamo  # noqa: F401

from tests.npu.device import install

install()

import torchair  # noqa: E402, F401

import tests.npu.parallel  # noqa: E402, F401
