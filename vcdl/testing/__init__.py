"""The contracts of parts as tests, for packages that add some; a pytest plugin: `pytest_plugins = ["vcdl.testing"]`.

A package subclasses a contract in its own tests, with its own part (docs/plugins.md). pytest explains the assertions of
what is registered as a plugin.
"""

from typing import Any


def pytest_configure(config: Any) -> None:
    """Make the marker of the contracts' tests known."""
    config.addinivalue_line("markers", "process: starts processes")
