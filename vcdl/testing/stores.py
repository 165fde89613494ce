"""Test the contract of every weight store."""

import multiprocessing
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from vcdl.errors import StoreLost
from vcdl.errors.refusal import Refusal
from vcdl.stores import Applied, Fold, Unfit, WeightStore
from vcdl.stores.base import Expected
from vcdl.stores.change import FOLD_BLOCK
from vcdl.testing.folds import SIZE, changing, fold, replayed, subtask, weights, workunit
from vcdl.wire.layout import Vector

OpenStore = Callable[..., WeightStore]
"""`open_store(size=SIZE)` opens a new connection to the same store at each call. It must be picklable, for other
processes."""


class StoreContract:
    """Tests that every weight store must pass: a package's test class subclasses it and has the fixture `open_store`.

    class TestSqliteStore(StoreContract):
        @pytest.fixture
        def open_store(self, tmp_path: Path) -> OpenStore:
            return partial(open_sqlite, tmp_path / "weights.db")
    """

    @pytest.fixture
    def store(self, open_store: OpenStore) -> Iterator[WeightStore]:
        """Yield a connection to a store that contains version 0, `weights(0)`; close it afterwards."""
        store = open_store()
        store.create(weights(0))
        yield store
        store.close()

    def test_a_vector_that_is_put_there_is_the_next_version_and_its_records_are_the_only_ones(
        self, store: WeightStore, open_store: OpenStore
    ) -> None:
        other = open_store()
        first, second = store.fold([fold(0)]) + store.fold([fold(1)])
        # This connection has read the store before the restore, so it may have a copy of the weights that are replaced.
        other.version()
        assert store.restore(5, weights(9), [first])
        check(store, 5, weights(9))
        check(other, 5, weights(9))
        assert other.fold([fold(0)]) == [first], "it is known, and not applied again"
        (again,) = other.fold([fold(1)])
        assert (second.version, again.version) == (2, 6), "the store has no record of the second any more"
        started_anew = open_store()
        assert started_anew.version() == 6
        assert started_anew.fold([fold(0), fold(1)]) == [first, again]

    # -- making one

    def test_a_new_store_holds_version_0(self, store: WeightStore) -> None:
        check(store, 0, weights(0))

    def test_making_it_again_leaves_it_as_it_is(self, store: WeightStore, open_store: OpenStore) -> None:
        store.fold([fold(0)])
        again = open_store()
        again.create(weights(99))
        check(again, 1, replayed(0))
        check(store, 1, replayed(0))

    def test_everything_is_there_when_it_is_opened_again(self, store: WeightStore, open_store: OpenStore) -> None:
        (record,) = store.fold([fold(0)])
        store.close()
        again = open_store()
        check(again, 1, replayed(0))
        assert again.fold([fold(0)]) == [record]
        check(again, 1, replayed(0))

    def test_what_was_read_belongs_to_the_reader(self, store: WeightStore) -> None:
        _, vector = store.read()
        vector[:] = 0
        check(store, 0, weights(0))
        store.fold([fold(0)])
        assert not vector.any()

    def test_the_vector_that_was_put_in_stays_the_callers(self, open_store: OpenStore) -> None:
        store, vector = open_store(), weights(0)
        store.create(vector)
        store.fold([fold(0)])
        assert vector.tobytes() == weights(0).tobytes()

    # -- folding

    def test_a_result_makes_a_version_and_a_record(self, store: WeightStore) -> None:
        (record,) = store.fold([fold(3)])
        assert record == Applied(subtask(3), workunit(3), version=1, staleness=0, weight=record.weight)
        assert record.weight == pytest.approx(0.1)
        check(store, 1, replayed(3))

    def test_several_at_once_are_one_at_a_time_to_the_last_bit(self, store: WeightStore, open_store: OpenStore) -> None:
        records = store.fold([fold(0), fold(1), fold(2)])
        assert [record.version for record in records] == [1, 2, 3]
        records += store.fold([fold(3)])
        records += open_store().fold([fold(4), fold(5)])
        assert [record.version for record in records] == [1, 2, 3, 4, 5, 6]
        check(store, 6, replayed(0, 1, 2, 3, 4, 5))

    def test_nothing_to_fold_changes_nothing(self, store: WeightStore) -> None:
        assert store.fold([]) == []
        check(store, 0, weights(0))

    def test_the_same_result_twice_counts_once_and_keeps_its_record(
        self, store: WeightStore, open_store: OpenStore
    ) -> None:
        (first,) = store.fold([replace(fold(0), trust=1 / 3)])
        assert first.trust == 1 / 3
        store.fold([fold(1)])
        assert store.fold([fold(0)]) == [first]
        assert open_store().fold([fold(0)]) == [first]
        check(store, 2, replayed(0, 1))

    def test_the_same_result_twice_in_one_batch_counts_once(self, store: WeightStore) -> None:
        first, second, third = store.fold([fold(0), fold(0), fold(1)])
        assert first == second
        assert third.version == 2
        check(store, 2, replayed(0, 1))

    def test_another_attempt_at_the_same_subtask_is_told_who_was_first(self, store: WeightStore) -> None:
        (first,) = store.fold([fold(0, attempt=1, base_version=0)])
        late, other = store.fold([fold(0, attempt=0), fold(1)])
        assert late == first
        assert late.workunit == workunit(0, attempt=1)
        assert other.version == 2
        check(store, 2, replayed(0, 1))

    def test_two_attempts_in_one_batch_count_once(self, store: WeightStore) -> None:
        records = store.fold([fold(0, attempt=1), fold(0, attempt=0)])
        assert [record.workunit for record in records] == [workunit(0, attempt=1)] * 2
        check(store, 1, replayed(0))

    def test_staleness_is_the_versions_made_since_the_base(self, store: WeightStore) -> None:
        seen: list[int] = []

        def watched(number: int, base_version: int) -> Fold:
            def note(w: Vector, staleness: int) -> float:
                seen.append(staleness)
                return 0.0

            return changing(subtask(number), note, base_version)

        records = store.fold([watched(0, 0), watched(1, 0), watched(2, 2)]) + store.fold([watched(3, 1)])
        assert [record.staleness for record in records] == seen == [0, 1, 0, 2]

    def test_the_weight_the_rule_gave_is_recorded(self, store: WeightStore) -> None:
        (record,) = store.fold([changing(subtask(0), lambda w, staleness: 0.0625)])
        assert record.weight == 0.0625

    @pytest.mark.parametrize("size", [0, 1, FOLD_BLOCK - 1, FOLD_BLOCK, 3 * FOLD_BLOCK + 1])
    def test_any_size_will_do(self, open_store: OpenStore, size: int) -> None:
        store = open_store(size=size)
        store.create(weights(0, size))
        store.fold([fold(0, size=size), fold(1, size=size)])
        check(store, 2, replayed(0, 1, size=size))
        store.close()

    def test_a_rule_that_fails_in_the_middle_changes_nothing(self, store: WeightStore) -> None:
        def broken(w: Vector, staleness: int) -> float:
            w[: SIZE // 2] = np.nan
            raise FloatingPointError("a rule went wrong")

        with pytest.raises(FloatingPointError):
            store.fold([fold(0), changing(subtask(1), broken)])
        check(store, 0, weights(0))
        # The failed batch must not leave a record either, so both subtasks count now.
        assert [record.version for record in store.fold([fold(0), fold(1)])] == [1, 2]
        check(store, 2, replayed(0, 1))

    def test_what_is_refused_when_it_has_been_read_changes_nothing_and_all_of_them_are_named(
        self, store: WeightStore
    ) -> None:
        store.fold([fold(0)])
        batch = [fold(1), fold(2, refusal=Refusal.NOT_FINITE), fold(3), fold(4, refusal=Refusal.NORM_TOO_LARGE)]
        # All refusals must come with one error, because the assimilator repeats the batch without these uploads only
        # once.
        with pytest.raises(Unfit) as caught:
            store.fold(batch)
        assert {name: refused.refusal for name, refused in caught.value.refused.items()} == {
            workunit(2): Refusal.NOT_FINITE,
            workunit(4): Refusal.NORM_TOO_LARGE,
        }
        check(store, 1, replayed(0))
        assert [record.version for record in store.fold([batch[0], batch[2]])] == [2, 3]
        check(store, 3, replayed(0, 1, 3))

    def test_what_is_in_the_weights_is_not_looked_at_again(self, store: WeightStore) -> None:
        """Check that an applied upload is not refused later, if its server was killed before it wrote the journal."""
        (first,) = store.fold([fold(0)])
        assert store.fold([fold(0, refusal=Refusal.NORM_TOO_LARGE)]) == [first]

    # -- losing it

    def test_weights_that_are_gone_or_older_than_the_journal_are_told_and_put_there_again(
        self, store: WeightStore, open_store: OpenStore
    ) -> None:
        (record,) = store.fold([fold(0)])
        other = open_store()
        # The journal is ahead of the store here, as after the store's server came back from an older dump.
        other.expected = lambda: Expected(2, subtask(1), 2)
        for look in (other.version, other.read, lambda: other.fold([fold(1)])):
            with pytest.raises(StoreLost, match="at version 1 and the journal at 2"):
                look()
        store.drop()
        store.drop()
        with pytest.raises(StoreLost):
            open_store().read()
        assert open_store().restore(1, replayed(0), [record])
        again = open_store()
        check(again, 1, replayed(0))
        assert again.records(0) == [record]
        assert again.records(1) == []

    # -- several processes

    @pytest.mark.process
    def test_two_processes_that_fold_at_once_lose_nothing_and_count_nothing_twice(
        self, store: WeightStore, open_store: OpenStore
    ) -> None:
        spawn = multiprocessing.get_context("spawn")
        begin = spawn.Barrier(2)
        shares = [list(range(60)), list(range(40, 100))]  # 40 … 59 come to both
        processes = [spawn.Process(target=_fold_many, args=(open_store, share, begin)) for share in shares]
        for process in processes:
            process.start()
        for process in processes:
            process.join(120)
            assert process.exitcode == 0
        assert store.version() == 100
        records = store.fold([fold(number) for number in range(100)])
        assert sorted(record.version for record in records) == list(range(1, 101))
        # The order of the two processes is chance, so the expected weights are computed in the order of the records.
        order = [int(record.subtask[-3:]) for record in sorted(records, key=lambda record: record.version)]
        check(store, 100, replayed(*order))

    @pytest.mark.process
    def test_a_reader_never_sees_half_an_update(self, open_store: OpenStore) -> None:
        store = open_store()
        store.create(np.zeros(SIZE, np.float32))
        spawn = multiprocessing.get_context("spawn")
        begin, results = spawn.Barrier(2), spawn.Queue()
        reader = spawn.Process(target=_read_many, args=(open_store, begin, results))
        reader.start()
        begin.wait()

        def add_one(w: Vector, staleness: int) -> float:
            w += 1
            return 1.0

        for number in range(300):
            store.fold([changing(subtask(number), add_one)])
        seen = results.get(timeout=60)
        reader.join(60)
        assert reader.exitcode == 0
        # Each fold adds 1 to all weights, so all weights of version v are v. Half an update would show two values.
        assert all(whole and first == version for version, first, whole in seen)
        versions = [version for version, _, _ in seen]
        assert versions == sorted(versions)


def check(store: WeightStore, version: int, vector: Vector) -> None:
    assert store.version() == version
    got_version, got = store.read()
    assert got_version == version
    assert got.dtype == np.float32
    assert got.tobytes() == vector.tobytes()


def _fold_many(open_store: OpenStore, numbers: list[int], begin: Any) -> None:
    store = open_store()
    begin.wait()
    for number in numbers:
        store.fold([fold(number)])
    store.close()


def _read_many(open_store: OpenStore, begin: Any, results: Any) -> None:
    store = open_store()
    begin.wait()
    seen = []
    for _ in range(200):
        version, vector = store.read()
        seen.append((version, float(vector[0]), bool((vector == vector[0]).all())))
    results.put(seen)
