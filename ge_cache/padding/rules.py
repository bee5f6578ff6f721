"""All padding rules, by the names of operators."""

from __future__ import annotations

from gearcache.ge_cache.padding import indices, products, rows, shapes
from gearcache.ge_cache.padding.rows import elementwise as elementwise
from gearcache.ge_cache.padding.step import Rule

RULES: dict[str, Rule] = {**rows.RULES, **products.RULES, **shapes.RULES, **indices.RULES}
SIZE_ARGUMENTS = rows.SIZE_ARGUMENTS
