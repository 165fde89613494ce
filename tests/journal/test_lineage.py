"""The updates that the newest weights are made of, when rollbacks left some out."""

from tests.job_events import applied, evaluated
from vcdl.journal.events import EpochClosed, RolledBack, StoreRestored, UpdateApplied
from vcdl.journal.lineage import Lineage


def rolled_back(version: int, to: int, dropped: tuple[int, ...]) -> RolledBack:
    return RolledBack(version, to, dropped, collapsed=dropped[0], measured=0.1, usual=0.9)


def lineage() -> Lineage:
    """Versions 1 to 5; back to 2 without 3 and 5, which is 6; then 7 and 8."""
    updates = [applied(f"e1 s{version}", version) for version in (1, 3, 2, 4, 5)]
    events = [
        *updates,
        evaluated(5, 1),
        rolled_back(6, 2, (3, 5)),
        applied("e1 s7", 7),
        applied("e1 s8", 8),
    ]
    return Lineage.of(events)


def versions(updates: list[UpdateApplied]) -> list[int]:
    return [update.version for update in updates]


def test_without_rollbacks_every_update_counts_in_the_order_of_its_version() -> None:
    line = Lineage.of([applied("e1 s1", 2), applied("e1 s0", 1)])
    assert (line.version, versions(line.after(0)), versions(line.after(1))) == (2, [1, 2], [2])
    assert not line.ends_with_recovery
    assert Lineage.of([]).version == 0


def test_dropped_updates_are_in_no_later_version() -> None:
    line = lineage()
    assert line.version == 8
    assert versions(line.after(0)) == [1, 2, 4, 7, 8]
    assert versions(line.after(2)) == [4, 7, 8]
    assert versions(line.after(6)) == [7, 8], "4 is in the version that the rollback made"
    assert versions(line.refolded_updates(line.rollbacks[0])) == [4]


def test_a_version_that_was_gone_back_from_leads_nowhere() -> None:
    assert [version for version in range(9) if lineage().leads_on(version)] == [0, 1, 2, 6, 7, 8]


def test_a_rollback_behind_another_one_undoes_it() -> None:
    line = lineage()
    again = Lineage.of([*line.recorded, *line.rollbacks, rolled_back(9, 1, (2, 4, 7, 8))])
    assert [version for version in range(10) if again.leads_on(version)] == [0, 1, 9]
    assert versions(again.after(1)) == []
    assert again.ends_with_recovery


def test_a_version_with_an_update_that_has_no_row_is_no_base_until_a_rollback() -> None:
    line = Lineage.of(
        [
            applied("e1 s1", 1), EpochClosed(1, 1), applied("e1 s3", 3), EpochClosed(2, 3, 1), rolled_back(4, 1, (3,)),
            applied("e1 s5", 5), EpochClosed(3, 5, 2),
        ],
    )  # fmt: skip
    assert line.bases == {0: 0, 1: 0, 4: 0, 5: 2}


def test_a_row_that_comes_late_does_not_change_what_an_earlier_snapshot_had() -> None:
    """Another update was version 2 when it was kept; then the store came back older."""
    line = Lineage.of([applied("e1 s1", 1), EpochClosed(1, 2), applied("e1 s2", 2), EpochClosed(2, 2)])
    assert line.bases == {0: 0, 2: 0}
    assert Lineage.of([applied("e1 s1", 1), EpochClosed(1, 2), applied("e1 s2", 2)]).bases == {0: 0}


def test_a_restored_store_has_all_that_the_journal_has() -> None:
    line = Lineage.of(
        [
            applied("e1 s1", 1),
            applied("e1 s3", 3),
            StoreRestored(5, 2, lost=1),
            applied("e1 s6", 6),
            EpochClosed(1, 6, 1),
        ]
    )
    assert line.bases == {0: 0, 5: 1, 6: 1}
    assert versions(line.after(1)) == [3, 6]
    assert (line.count_unrecorded(4), line.count_unrecorded(5)) == (2, 0)
    assert Lineage.of([applied("e1 s1", 1), StoreRestored(5, 1, lost=0)]).ends_with_recovery


def test_where_an_older_journal_gave_a_number_twice_it_is_no_base() -> None:
    line = Lineage.of(
        [
            applied("e1 s1", 1),
            applied("e1 s3", 3),
            StoreRestored(3, 2),
            applied("e1 s4", 4),
            EpochClosed(1, 4),
        ]
    )
    assert line.bases == {0: 0, 4: 0}
