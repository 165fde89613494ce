"""Open the store that settings name. A service's client library is imported only when it is used."""

import pkgutil
from contextlib import closing, suppress
from pathlib import Path

import numpy as np

from vcdl.errors import StoreError, StoreLost
from vcdl.rules.state import STATELESS, RuleState
from vcdl.stores.base import WeightStore
from vcdl.stores.settings import StoreSettings


def load_client_libraries() -> None:
    """Load MariaDB's client library, if it is installed, before anything loads TensorFlow.

    The TLS libraries of the two can only be loaded into one process in this order: in the other order the first TLS
    connection causes a segmentation fault.
    """
    with suppress(ImportError):  # `open_store` says how to install it
        import MySQLdb  # noqa: F401


def check_usable(settings: StoreSettings) -> None:
    """Check that a store can be used, by writing, reading and removing a trial weight in it.

    A folder is not checked. Call this before a long preparation.

    Raises:
        StoreError: The library is missing, the service cannot be reached or is of the wrong kind, or the login or one
            of its permissions is refused.
    """
    if settings.is_folder:
        return
    # One weight is enough to use every permission that a run needs.
    with closing(open_store(settings, "vcdl-trial", 1)) as store, suppress(StoreLost):  # another trial has removed it
        store.check_service()
        store.create(np.zeros(1, np.float32))
        store.read()
        store.drop()


def open_store(settings: StoreSettings, job: str, size: int, state: RuleState = STATELESS) -> WeightStore:
    """Return the store of a job's weights without connecting.

    Args:
        settings: The store's address and login.
        job: The key: two runs that must not share weights need two names.
        size: The number of weights n.
        state: The layout of the update rule's own numbers, which follow W.

    Raises:
        StoreError: The library of the service is not installed, or the file of the trusted authority is missing.
        PluginError: The store is a plugin that cannot be loaded.
    """
    if settings.ca and not Path(settings.ca).is_file():
        raise StoreError(f"{settings}: there is no file {settings.ca}: `ca` names the certificate of the authority")
    opened: WeightStore = pkgutil.resolve_name(settings.kind.opens)(settings, job, size, state=state)
    return opened
