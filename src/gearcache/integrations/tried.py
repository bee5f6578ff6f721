"""Which release of transformers the integrations work with: they go by names and places that change with each."""

from __future__ import annotations

#: The release that all tests have passed with; `setup.cfg` has it in the extras.
TRANSFORMERS = (5, 23)


def transformers_problem(integration: str, extra: str) -> str:
    """Return what is wrong with the release of transformers that is installed; empty for the one that was tried."""
    import transformers

    found = transformers.__version__
    if tuple(int(part) for part in found.split(".")[:2]) == TRANSFORMERS:
        return ""
    tried = ".".join(map(str, TRANSFORMERS))
    return (
        f"gearcache.integrations.{integration} works with transformers {tried}, this is {found}: "
        f"`pip install 'gearcache[{extra}]'`; `gearcache.attach(model, …)` does not depend on it"
    )
