"""States that are kept beside the journal's events: used when they fit, and never instead of what the events say."""

import shutil
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.disturbed_job import PLANS, DisturbedJob
from tests.examples import examples
from tests.job_events import an_epoch, applied, created
from tests.recorded_run import FIRST_SESSION, WHOLE_RUN
from vcdl.journal import kept_state
from vcdl.journal.events import Event, RunPaused, UpdateApplied
from vcdl.journal.history import JobHistory
from vcdl.journal.journal import Journal
from vcdl.journal.kept_state import KeptState, kept_history
from vcdl.journal.packing import pack, unpack
from vcdl.loop.job_state import JobState
from vcdl.loop.plan import Plan
from vcdl.trust.hosts import HostHistory
from vcdl.trust.kept_hosts import load_host_history, shown_hosts


@given(plan=PLANS, seed=st.integers(0, 10**6), cut=st.floats(0, 1))
@examples(60)
def test_a_job_goes_on_from_its_packed_state_as_if_nothing_had_been_packed(plan: Plan, seed: int, cut: float) -> None:
    job = DisturbedJob.run_to_its_end(plan, seed)
    begun = round(cut * len(job.journal))
    whole, hosts = JobState.of(plan), HostHistory()
    for recorded in job.journal[:begun]:
        whole.follow(recorded)
        hosts.follow(recorded)
    again, hosts_again = unpack(JobState, pack(whole)), unpack(HostHistory, pack(hosts))
    for recorded in job.journal[begun:]:
        for state in (whole, hosts, again, hosts_again):
            state.follow(recorded)
    assert again == whole
    assert list(again.history.open) == list(whole.history.open), "in the same order, too"
    assert list(again.tries.waiting) == list(whole.tries.waiting)
    assert list(again.due) == list(whole.due)
    assert hosts_again == hosts


def test_who_only_looks_reads_no_uploads_that_a_conviction_would_name(tmp_path: Path) -> None:
    events = [replace(one, host="host-1") if isinstance(one, UpdateApplied) else one for one in an_epoch(1)]
    with closing(journal_with(tmp_path / "journal.db", *events)) as journal:
        whole = load_host_history(journal)
        whole.advance()
        whole.save(at_once=True)
        journal.append(*an_epoch(2))
        shown = shown_hosts(journal)
        assert whole.last_id == shown.last_id
        assert any(host.unverified for host in whole.state.hosts.values())
        assert not any(host.unverified for host in shown.state.hosts.values())
        whole.advance(), shown.advance()
        assert not shown.save(at_once=True)
        for host in (*whole.state.hosts.values(), *shown.state.hosts.values()):
            host.unverified.clear()
        assert shown.state == whole.state


def journal_with(path: Path, *events: Event) -> Journal:
    journal = Journal.at(path)
    journal.append(*events, time_s=1.0)
    return journal


def history_kept(journal: Journal) -> KeptState[JobHistory]:
    """Keeps what the journal says now."""
    kept = kept_history(journal)
    kept.advance()
    kept.save(at_once=True)
    return kept


def versions(journal: Journal) -> tuple[int, int]:
    """The version in the kept state, and the one that the journal tells."""
    kept = kept_history(journal)
    return kept.state.version, kept.advance().version


def test_a_state_is_begun_from_what_is_kept_and_only_newer_events_are_read(tmp_path: Path) -> None:
    with closing(journal_with(tmp_path / "journal.db", *an_epoch(1))) as journal:
        history_kept(journal)
        journal.append(created("e2 s0"), applied("e2 s0", 2))
        assert versions(journal) == (1, 2)
    with closing(Journal.read_only(tmp_path / "journal.db")) as journal:
        assert versions(journal) == (1, 2)


def test_a_whole_run_is_told_alike_with_and_without_what_is_kept(tmp_path: Path) -> None:
    with closing(Journal.at(tmp_path / "journal.db")) as journal:
        for number, recorded in enumerate(WHOLE_RUN, start=1):
            journal.append(recorded.event, time_s=recorded.time_s)
            if number in (5, len(FIRST_SESSION)):
                history_kept(journal)
        assert kept_history(journal).last_id == len(FIRST_SESSION)
        assert kept_history(journal).advance() == JobHistory.of(WHOLE_RUN)


def test_a_journal_that_went_back_is_not_told_by_what_was_kept_later(tmp_path: Path) -> None:
    """A backup that is put back brings its own states; rows that were taken away by hand make a state worthless."""
    path, backup = tmp_path / "journal.db", tmp_path / "backup.db"
    with closing(journal_with(path, *an_epoch(1))) as journal:
        history_kept(journal)
    shutil.copyfile(path, backup)
    with closing(journal_with(path, *an_epoch(2))) as journal:
        history_kept(journal)
    with closing(sqlite3.connect(path)) as by_hand, by_hand:
        by_hand.execute("DELETE FROM events WHERE id > 5")
        by_hand.execute("UPDATE sqlite_sequence SET seq = 5")
    with closing(journal_with(path, created("e2 s0"), *an_epoch(3))) as journal:
        assert versions(journal) == (0, 3), "the ids are the same, the events are not"
    shutil.copyfile(backup, path)
    with closing(Journal.at(path)) as journal:
        assert versions(journal) == (1, 1)


def test_a_state_that_other_code_folded_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_state, "_PACKAGE", tmp_path)
    marks = set()
    for text in ("one", "two"):
        for file in (tmp_path / "a.py", tmp_path / "b" / "c.py"):
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
            marks.add(kept_state._fingerprint.__wrapped__(("a.py", "b", "gone.py")))
    assert len(marks) == 4


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE states SET state = x'00'", "UPDATE states SET state = 'text'",
        "UPDATE states SET form = 'of another version'", "UPDATE states SET last_id = 3",
        "UPDATE states SET last_id = 999", "DELETE FROM states", "DROP TABLE states",
    ],
)  # fmt: skip
def test_a_state_that_does_not_fit_is_folded_again(tmp_path: Path, damage: str) -> None:
    with closing(journal_with(tmp_path / "journal.db", *an_epoch(1))) as journal:
        history_kept(journal)
    with closing(sqlite3.connect(tmp_path / "journal.db")) as by_hand, by_hand:
        by_hand.execute(damage)
    with closing(Journal.read_only(tmp_path / "journal.db")) as journal:
        assert versions(journal) == (0, 1)


@pytest.mark.parametrize(
    "packed",
    [b"", b"\x90", b"\x91\x01", b"\xc0", b"\xa4text", b"\x91" * 100_000, b"\x81\xa7version\xa3two", b"{}", b"\xc1"],
)
def test_a_state_that_says_nothing_sensible_is_folded_again(tmp_path: Path, packed: bytes) -> None:
    with closing(journal_with(tmp_path / "journal.db", *an_epoch(1))) as journal:
        kept = history_kept(journal)
        journal.append(RunPaused("later"))
        journal.keep_state("history", kept._form, kept.last_id + 1, zlib.compress(packed))
        assert versions(journal) == (0, 1)


def test_a_state_of_later_events_stays(tmp_path: Path) -> None:
    with closing(journal_with(tmp_path / "journal.db", *an_epoch(1))) as journal:
        behind = kept_history(journal)
        behind.follow(next(iter(journal.stream(0))))
        history_kept(journal)
        behind.save(at_once=True)
        assert versions(journal) == (1, 1)


def test_a_state_is_kept_when_it_is_far_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_state, "EVENTS", 4)
    with closing(journal_with(tmp_path / "journal.db", created("e1 s0"), applied("e1 s0", 1))) as journal:
        kept = kept_history(journal)
        kept.advance()
        assert not kept.save()
        journal.append(created("e2 s0"), applied("e2 s0", 2))
        kept.advance()
        assert kept.save()
        assert kept_history(journal).state.version == 2


def test_the_newest_events_of_a_kind_come_first(tmp_path: Path) -> None:
    with closing(journal_with(tmp_path / "journal.db", *(event for n in range(1, 500) for event in an_epoch(n)))) as j:
        found = [row.event.version for row in j.backwards(UpdateApplied) if isinstance(row.event, UpdateApplied)]
        assert found == list(range(499, 0, -1))
        assert {type(row.event) for row in j.stream(kinds=(UpdateApplied, RunPaused))} == {UpdateApplied}
