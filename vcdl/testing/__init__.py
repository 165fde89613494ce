"""The contracts of parts as tests, for packages that add some; a pytest plugin: `pytest_plugins = ["vcdl.testing"]`.

A package subclasses a contract in its own tests, with its own part (docs/plugins.md). pytest explains the assertions of
what is registered as a plugin.
"""

from typing import Any


def pytest_configure(config: Any) -> None:
    """Make the markers of the contracts' tests known."""
    # pytest warns of markers that it does not know, or refuses them with --strict-markers.
    for marker in ("process: starts processes", "server: needs a server"):
        config.addinivalue_line("markers", marker)
