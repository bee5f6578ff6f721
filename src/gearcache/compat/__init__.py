"""Replacements for functions of other libraries, with their names and signatures."""

from gearcache.torch_release import require_torch

require_torch()
