"""pytest explains the assertions of the contracts."""

pytest_plugins = ["vcdl.testing"]
