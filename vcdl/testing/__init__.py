"""Tests for packages that add parts to VCDL, one class per kind of part; also a pytest plugin (`vcdl.testing`).

Such a class states the contract of a rule, store, data set, grid, cloud or trust. A package subclasses it in its own
tests, with its own part (docs/plugins.md), and has `pytest_plugins = ["vcdl.testing"]`, so that pytest explains the
failed assertions of the contracts.
"""

from typing import Any


def pytest_configure(config: Any) -> None:
    """Register the markers of the contracts' tests."""
    # Markers are registered because pytest warns of others, or refuses them with --strict-markers.
    for marker in ("process: starts processes", "server: needs a server"):
        config.addinivalue_line("markers", marker)
