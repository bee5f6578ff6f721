"""One task with a registry, as a tier does it: given up at its deadline, and whatever goes wrong is a `RemoteError`."""

from __future__ import annotations

import http.client
import os
from collections.abc import Callable
from typing import TypeVar

from gearcache.cache.remote.oci.credentials import find_credentials
from gearcache.cache.remote.oci.reference import Reference
from gearcache.cache.remote.oci.registry import Registry
from gearcache.cache.remote.protocol import CONNECT_SECONDS, Deadline, RemoteError
from gearcache.cache.remote.within import within

_Result = TypeVar("_Result")


def with_registry(
    reference: Reference,
    deadline: Deadline,
    task: Callable[[Registry], _Result],
    *,
    actions: str = "pull",
    connect_seconds: float = CONNECT_SECONDS,
) -> _Result:
    """Return what a task with the registry of a reference returns; `RemoteError`, or what the task raises of ours."""
    deadline.check(reference.label)
    try:
        credentials = find_credentials(reference.host, reference.repository, os.environ)
        registry = Registry(reference, credentials, deadline, actions=actions, connect_seconds=connect_seconds)
        return within(deadline, reference.label, lambda: task(registry), registry.cut)
    except TimeoutError as error:
        raise RemoteError(reference.label, "it did not answer in time") from error
    except (OSError, http.client.HTTPException) as error:
        raise RemoteError(reference.label, f"{type(error).__name__}: {error}") from error
    except ValueError as error:
        raise RemoteError(reference.label, str(error)) from error
