"""`prewarm`: every node of a Ray cluster has all that a deployment calls, and each entry is compiled once."""

from gearcache.integrations.ray.prewarm import NodePrewarmed as NodePrewarmed
from gearcache.integrations.ray.prewarm import prewarm as prewarm

__all__ = ["NodePrewarmed", "prewarm"]
