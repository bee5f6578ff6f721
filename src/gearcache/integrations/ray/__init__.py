"""`prewarm`: gives every node of a Ray cluster what a deployment calls, compiling each entry once."""

from gearcache.integrations.ray.prewarm import NodePrewarmed as NodePrewarmed
from gearcache.integrations.ray.prewarm import prewarm as prewarm

__all__ = ["NodePrewarmed", "prewarm"]
