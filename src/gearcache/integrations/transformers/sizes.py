"""What the graphs of one attached model take."""

from __future__ import annotations

from msgspec import Struct

from gearcache.integrations.transformers.model_call import Miss


class Sizes(Struct, frozen=True):
    """Sizes of batches and lengths of prompts, ascending, and how many tokens a cache holds."""

    batch: tuple[int, ...]
    prompt: tuple[int, ...]
    cache_length: int

    def __str__(self) -> str:
        return f"batch={list(self.batch)}, prompt={list(self.prompt)}, cache_length={self.cache_length}"

    def batch_of(self, rows: int) -> int:
        """Return the size that a batch is filled up to."""
        return next(size for size in self.batch if size >= rows)

    def prompt_of(self, tokens: int) -> int:
        """Return the length that a prompt which is not read in pieces is filled up to."""
        return next(size for size in self.prompt if size >= tokens)

    def no_room(self, rows: int, tokens: int) -> Miss | None:
        """Return why a batch that has come to so many tokens does not fit; None where it does."""
        if rows > self.batch[-1]:
            return Miss("input_ids", f"a batch of {rows}", f"batches up to {self.batch[-1]} (batch=)")
        return self.too_long(tokens)

    def too_long(self, tokens: int) -> Miss | None:
        """Return why so many tokens do not fit into the cache; None where they do."""
        if tokens <= self.cache_length:
            return None
        allowed = f"up to {self.cache_length} tokens in the cache (cache_length=)"
        return Miss("max_length", f"{tokens} tokens or more", allowed)
