"""Pages by HTTP: of the machine's metadata, and of the project."""

from __future__ import annotations

import urllib.request
from typing import Any

TIMEOUT_S = 10.0
_MOST_BYTES = 1_000_000
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Metadata is on the machine itself: never through a proxy."""


def fetch(
    url: str, headers: dict[str, str], method: str = "GET", timeout_s: float = TIMEOUT_S, opener: Any = _direct
) -> tuple[str, str]:
    """The body and its ETag."""
    with opener.open(urllib.request.Request(url, headers=headers, method=method), timeout=timeout_s) as reply:
        return reply.read(_MOST_BYTES).decode("utf-8", "replace").strip(), reply.headers.get("ETag", "")
