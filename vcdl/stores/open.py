"""The store that settings ask for; the client library of a service is imported only when it is used."""

from contextlib import closing, suppress

from vcdl.errors import StoreLost
from vcdl.state import STATELESS, State
from vcdl.stores.base import WeightStore
from vcdl.stores.file import FileStore
from vcdl.stores.settings import Service, StoreSettings


def import_client_library(settings: StoreSettings) -> None:
    """Load the service's library before TensorFlow: the TLS libraries of MariaDB and TensorFlow share a process only in this order,
    in the other one the first TLS connection is a segmentation fault.
    """
    if settings.service == Service.MYSQL:
        import vcdl.stores.mysql  # noqa: F401


def see_that_it_answers(settings: StoreSettings) -> None:
    """Find out before a long preparation. Raises StoreError: its library is missing, it is away, or it refuses the login."""
    if settings.service == Service.FILE:
        return
    with closing(open_store(settings, "vcdl-is-there", 1)) as store, suppress(StoreLost):  # it has no such job
        store.version()


def open_store(settings: StoreSettings, job: str, size: int, state: State = STATELESS) -> WeightStore:
    """The weights of `job`, a vector of `size` float32, and its rule's `state`, in the store of `settings`. Nothing is connected yet.

    `job` is the key they are kept under: two runs that must not share weights need two names. Raises StoreError when the
    library for the service is not installed.
    """
    if settings.service == Service.REDIS:
        from vcdl.stores.redis import RedisStore

        return RedisStore(settings, job, size, state=state)
    if settings.service == Service.MYSQL:
        from vcdl.stores.mysql import MysqlStore

        return MysqlStore(settings, job, size, state=state)
    # A folder has one lock: it is strong, which is more than `eventual` asks for.
    return FileStore(settings.folder / job, size, state)
