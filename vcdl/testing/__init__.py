"""Contracts of parts, as tests for packages that add parts; a pytest plugin: `pytest_plugins = ["vcdl.testing"]`.

A package subclasses a contract in its own tests, with its own part (docs/plugins.md). It is registered as a plugin so
that pytest explains the contracts' failed assertions.
"""

from typing import Any


def pytest_configure(config: Any) -> None:
    """Register the markers of the contracts' tests."""
    # pytest warns of unregistered markers, or refuses them with --strict-markers.
    for marker in ("process: starts processes", "server: needs a server"):
        config.addinivalue_line("markers", marker)
