"""Stand-ins for other libraries' functions, under their names and signatures."""

from gearcache.torch_release import require_torch

require_torch()
