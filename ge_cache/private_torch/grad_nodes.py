"""What a captured node does to autograd; each private name has a test."""

from __future__ import annotations

import torch


def is_grad_switch(node: torch.fx.Node) -> bool:
    """Return whether a captured node only turns autograd on or off, which has no effect in a graph without it."""
    return node.target in (torch._C._set_grad_enabled, torch.set_grad_enabled) and not node.users


def enters_inference_mode(node: torch.fx.Node) -> bool:
    """Whether a captured node begins a region of inference mode, on or off by its argument."""
    return node.target is torch.autograd.grad_mode._enter_inference_mode


def leaves_inference_mode(node: torch.fx.Node) -> bool:
    """Return whether a captured node ends the innermost region."""
    return node.target is torch.autograd.grad_mode._exit_inference_mode
