"""The promises of every store, on each of ours: `open_store` of conftest.py."""

from vcdl.testing.stores import StoreContract


class TestOurStores(StoreContract):
    """The contract, a folder, Redis and MariaDB."""
