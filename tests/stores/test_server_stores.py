"""The promises of a store on a server, whatever happens to the server: killed, emptied, used by others meanwhile."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from benchmarks.private_servers import PrivateServer
from tests.stores.conftest import Service, retried
from vcdl.errors import StoreError, StoreLost, StoreUnavailable
from vcdl.stores.base import Conflict
from vcdl.stores.chunks import chunks
from vcdl.testing.folds import changing, fold, interrupted, replayed, weights
from vcdl.wire.layout import Vector

pytestmark = pytest.mark.server

OwnService = tuple[Service, PrivateServer]


# -- chunks


def test_jobs_that_are_put_there_at_the_same_time_are_all_there(service: Service, job: str) -> None:
    """To MariaDB, rows that are not there yet are one gap, which two of them lock: a deadlock for one."""
    together, jobs = threading.Barrier(4), [f"{job}-{number}" for number in range(4)]

    def create(name: str) -> None:
        store = service.open(name)
        together.wait(30)
        store.create(weights(0))

    for round_number in range(5):
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(create, [f"{name}-{round_number}" for name in jobs]))
        for name in jobs:
            store = service.open(f"{name}-{round_number}")
            assert store.read()[1].tobytes() == weights(0).tobytes()
            store.drop()


DAMAGE: dict[str, Callable[[bytes, bytes, bytes], bytes | None]] = {
    "gone": lambda chunk, old, other: None,
    "short": lambda chunk, old, other: b"short",
    "a bit": lambda chunk, old, other: bytes([chunk[0] ^ 1]) + chunk[1:],
    "a bit of the seal": lambda chunk, old, other: chunk[:-1] + bytes([chunk[-1] ^ 1]),
    "the one of before": lambda chunk, old, other: old,
    "another one": lambda chunk, old, other: other,
}
"""From the chunk, what it was a version before, and another one of its version."""


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_chunk_that_is_gone_or_damaged_is_a_loss_and_restored(
    service: Service, job: str, damage: Callable[[bytes, bytes, bytes], bytes | None]
) -> None:
    """An eviction, a hand, or a memory that forgets: the head is there and says a version."""
    store = service.created(job, chunk_bytes=400)
    records = store.fold([fold(1)])
    old = service.chunk(job, 3)
    records += store.fold([fold(2)])
    service.put_chunk(job, 3, damage(service.chunk(job, 3), old, service.chunk(job, 2)))
    store = service.open(job)
    for call in (store.read, store.read_whole, lambda: store.fold([fold(3)])):
        with pytest.raises(
            StoreLost, match=r"chunk 3 of job .* is missing or damaged: the weights must be restored from a snapshot"
        ):
            call()
    assert store.restore(2, replayed(1, 2), records)
    assert service.open(job).fold([fold(1), fold(3)])[0] == records[0]
    assert store.read()[1].tobytes() == replayed(1, 2, 3).tobytes()


def test_chunks_of_an_earlier_version_of_vcdl_have_no_seal_and_are_read(service: Service, job: str) -> None:
    store = service.created(job, chunk_bytes=400)
    sizes = [len(chunk) for chunk in chunks(weights(0), 400)]
    for number, size_bytes in enumerate(sizes):
        service.put_chunk(job, number, service.chunk(job, number)[:size_bytes])
    assert service.open(job).read()[1].tobytes() == weights(0).tobytes()
    store.close()
    assert service.open(job).fold([fold(1)])
    assert service.open(job).read()[1].tobytes() == replayed(1).tobytes()
    assert len(service.chunk(job, 0)) > sizes[0]


def test_a_store_that_others_change_all_the_time_is_waited_for(service: Service, job: str) -> None:
    """Conflict is the store's own word, and never reaches its user."""
    store: Any = service.created(job)
    busy: list[int] = []

    def load(*_: object) -> None:
        busy.append(1)
        raise Conflict

    store._load = load
    for call in (store.read, store.read_whole, lambda: store.fold([fold(1)])):
        with pytest.raises(StoreUnavailable, match="run fewer"):
            call()
    assert len(busy) > 100


# -- the server goes away


def test_killed_between_read_and_write_it_is_waited_for_and_the_fold_counts_once(own_service: OwnService) -> None:
    service, server = own_service
    store = service.created(chunk_bytes=400)
    store.fold([fold(1)])
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        store.fold([interrupted(server.kill, 2)])
    with pytest.raises(StoreUnavailable):
        store.version()
    server.start()
    assert retried(lambda: store.fold([fold(2)]))[0].version == 2
    assert store.read()[1].tobytes() == replayed(1, 2).tobytes()


def test_weights_that_are_gone_are_told_from_a_server_that_is_away_and_restored(own_service: OwnService) -> None:
    service, _ = own_service
    store, other = service.created(chunk_bytes=400), service.open()
    records = store.fold([fold(1), fold(2)])
    version, snapshot = store.read()
    store.fold([fold(3)])
    assert other.version() == 3
    service.forget()
    with pytest.raises(StoreLost, match="restored from a snapshot"):
        store.fold([fold(4)])
    assert store.restore(version, snapshot, records)
    assert not other.restore(version, weights(9), ()), "the first one's stands"
    assert [record.version for record in other.fold([fold(1), fold(3), fold(4)])] == [1, 3, 4]
    assert store.read()[1].tobytes() == replayed(1, 2, 3, 4).tobytes()


# -- logins


def test_a_refused_login_says_what_to_do_and_never_the_password(service: Service, job: str) -> None:
    for user in ("nobody", "vcdl"):
        url = service.url.replace("vcdl@", "").replace("://", f"://{user}:wrong-secret@")
        with pytest.raises(StoreError, match="VCDL_STORE_PASSWORD") as caught:
            service.open(job, url).version()
        assert not isinstance(caught.value, StoreUnavailable), "no use to wait"
        assert "secret" not in str(caught.value)
        assert caught.value.__cause__ is None


# -- several servers


def test_a_strong_server_waits_for_its_turn(service: Service, job: str) -> None:
    store, other = service.created(job), service.open(job)
    happened: list[str] = []

    def slow(w: Vector, staleness: int) -> float:
        happened.append("slow begins")
        time.sleep(0.3)
        happened.append("slow ends")
        return 0.0

    thread = threading.Thread(target=lambda: store.fold([changing("slow", slow)]))
    thread.start()
    while not happened:
        time.sleep(0.01)
    assert service.open(job).read()[0] == 0, "a reader does not wait"
    other.fold([interrupted(lambda: happened.append("quick"), 1)])
    thread.join()
    assert happened == ["slow begins", "slow ends", "quick"], "nothing is folded in vain"


def test_eventual_overwrites_and_counts_what_is_lost(service: Service, job: str) -> None:
    store, other = (service.open(job, consistency="eventual", chunk_bytes=400) for _ in range(2))
    store.create(weights(0))
    (record,) = store.fold([interrupted(once(lambda: other.fold([fold(2)])), 1)])
    assert record.version == 2, "versions are never given twice"
    assert store.read()[1].tobytes() == replayed(1).tobytes(), "2 is overwritten"
    assert store.lost_updates() == 1
    assert other.version() == 2
    assert other.lost_updates() == 1
    assert store.fold([fold(1), fold(2)])[0].version == 2
    other.fold([fold(3), fold(4)])
    (record,) = store.fold([interrupted(once(lambda: other.fold([fold(6)])), 5)])
    assert record.version == 6
    assert store.lost_updates() == 2
    assert store.read()[1].tobytes() == replayed(1, 3, 4, 5).tobytes()


def test_a_restored_store_goes_on_counting_what_is_lost(service: Service, job: str) -> None:
    store, other = (service.open(job, consistency="eventual") for _ in range(2))
    store.create(weights(0))
    records = [*other.fold([fold(2)]), *store.fold([fold(3)])]
    store.drop()
    assert store.restore(2, replayed(3), records, lost=1), "2 is missing in this snapshot"
    assert store.lost_updates() == 1
    store.fold([interrupted(once(lambda: other.fold([fold(4)])), 5)])
    assert store.lost_updates() == 2
    assert service.open(job).lost_updates() == 2


def test_the_count_is_of_the_weights_that_were_read(service: Service, job: str) -> None:
    """A snapshot and the number of updates that are missing in it belong together."""
    store, other, third = (service.open(job, consistency="eventual") for _ in range(3))
    store.create(weights(0))
    assert store.read()[0] == 0
    other.fold([interrupted(once(lambda: third.fold([fold(2)])), 1)])
    assert store.lost_updates() == 0
    assert store.read()[0] == 2
    assert store.lost_updates() == 1


def test_eventual_counts_no_result_twice(service: Service, job: str) -> None:
    store, other = (service.open(job, consistency="eventual") for _ in range(2))
    store.create(weights(0))
    (record,) = store.fold([interrupted(once(lambda: other.fold([fold(1)])), 1)])
    assert record.version == 1, "the other had the same result, and was first"
    assert store.read()[1].tobytes() == replayed(1).tobytes()
    assert store.lost_updates() == 0


def once(call: Callable[[], object]) -> Callable[[], None]:
    """`call`, and nothing when it is called again."""
    calls = [call]

    def first() -> None:
        if calls:
            calls.pop()()

    return first


# -- the job is over
