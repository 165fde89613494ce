"""The append-only event log, in real SQLite files."""

import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests.recorded_run import applied
from vcdl.errors import JournalError, JournalUnavailable
from vcdl.journal.database import _switch_to_wal
from vcdl.journal.events import EpochClosed, Event, RunPaused, RunStarted, StopDecided, WorkunitCreated
from vcdl.journal.journal import _PAGE, Journal

APPEND_FOR_EVER = """
import itertools, sys
from pathlib import Path
from vcdl.journal.events import WorkunitCreated
from vcdl.journal.journal import _PAGE, Journal
journal, who = Journal.at(Path(sys.argv[1])), int(sys.argv[2])
for number in itertools.count():
    pair = [WorkunitCreated(f"j_e{who:04d}_s{number:03d}_a{side}_v000000") for side in (0, 1)]
    journal.append(*pair)
    print(number, flush=True)
"""


def appender(path: Path, who: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", APPEND_FOR_EVER, str(path), str(who)], stdout=subprocess.PIPE)


def test_events_come_back_in_order_with_their_time(tmp_path: Path) -> None:
    journal = Journal.at(tmp_path / "journal.db")
    before_s = time.time()
    journal.append(RunStarted(resumed=False), EpochClosed(1, 50))
    journal.append(RunPaused("interrupted"), time_s=123.5)
    rows = journal.read()
    assert [row.event for row in rows] == [RunStarted(resumed=False), EpochClosed(1, 50), RunPaused("interrupted")]
    assert [row.id for row in rows] == [1, 2, 3]
    assert before_s <= rows[0].time_s <= time.time()
    assert rows[2].time_s == 123.5


@pytest.mark.slow
def test_a_long_journal_streams_in_pages_and_tells_the_same(tmp_path: Path) -> None:
    journal = Journal.at(tmp_path / "journal.db")
    assert list(journal.stream()) == []
    journal.append(*(EpochClosed(epoch, epoch) for epoch in range(2 * _PAGE + 3)))
    stream = journal.stream(after_id=1)
    first = next(stream)
    journal.append(EpochClosed(2 * _PAGE + 3, 0))
    assert [first, *stream] == journal.read(after_id=1), "with what was appended meanwhile"


def test_a_fact_is_kept_once_and_the_first_telling_of_it_stands(tmp_path: Path) -> None:
    journal = Journal.at(tmp_path / "journal.db")
    first, again = applied("j_e0001_s000_a0_v000000", 1), applied("j_e0001_s000_a1_v000007", 9, staleness=1)
    journal.append(first)
    journal.append(again, EpochClosed(1, 1))
    assert [row.event for row in journal.read()] == [first, EpochClosed(1, 1)]


@pytest.mark.process
def test_processes_that_append_at_once_lose_nothing_and_a_follower_misses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = Journal.at(path)
    processes = [appender(path, who) for who in (1, 2)]
    try:
        followed: list[str] = []
        last_id = 0
        deadline_s = time.monotonic() + 60
        while len(followed) < 300 and time.monotonic() < deadline_s:
            for row in journal.read(last_id):
                last_id = row.id
                assert isinstance(row.event, WorkunitCreated)
                followed.append(row.event.workunit)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    followed += [row.event.workunit for row in journal.read(last_id) if isinstance(row.event, WorkunitCreated)]
    everything = [row.event.workunit for row in journal.read() if isinstance(row.event, WorkunitCreated)]
    assert len(followed) >= 300
    assert followed == everything
    assert len(set(everything)) == len(everything)


@pytest.mark.process
def test_kill_9_leaves_whole_transactions_and_all_that_were_reported(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    for who in range(3):
        process = appender(path, who)
        assert process.stdout is not None
        for _ in range(20 + 7 * who):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        reported = 20 + 7 * who + len(process.communicate()[0].splitlines())
        mine = [row for row in Journal.at(path).read() if f"_e{who:04d}_" in str(row.event)]
        assert len(mine) % 2 == 0, "both events of a pair or none"
        assert len(mine) >= 2 * reported


def append_all(journal: Journal, events: Iterable[Event]) -> None:
    for event in events:
        journal.append(event)


@pytest.mark.process
def test_on_a_small_disk_that_is_really_full_it_is_the_same(small_disk: Path) -> None:
    journal = Journal.at(small_disk / "journal.db")
    journal.append(RunPaused("first"))
    other = small_disk / "other"
    other.write_bytes(b"x" * 100_000)
    rows = iter(range(1000))
    with pytest.raises(JournalUnavailable, match="database or disk is full"):
        append_all(journal, (RunPaused("x" * 2000) for _ in rows))
    assert next(rows) > 3
    before = journal.read()
    assert Journal.read_only(small_disk / "journal.db").read() == before
    other.unlink()
    journal.append(RunPaused("last"))
    assert [row.event for row in journal.read()] == [*(row.event for row in before), RunPaused("last")]
    journal.close()


@pytest.mark.parametrize("made", ["", "PRAGMA journal_mode=WAL"])
def test_a_reader_that_comes_between_the_file_and_its_table_finds_nothing_yet(tmp_path: Path, made: str) -> None:
    path = tmp_path / "journal.db"
    path.touch()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(made)
    reader = Journal.read_only(path)
    assert reader.read() == []
    Journal.at(path).append(RunPaused("interrupted"))
    assert [row.event for row in reader.read()] == [RunPaused("interrupted")]


@pytest.mark.parametrize("contents", [b"this is no database" * 100, b"\x00" * 5000])
def test_a_file_that_is_no_journal_is_refused(tmp_path: Path, contents: bytes) -> None:
    (tmp_path / "journal.db").write_bytes(contents)
    for open_journal in (Journal.at, Journal.read_only):
        with pytest.raises(JournalError, match=r"journal\.db is damaged, or is no journal .*begin the run again"):
            open_journal(tmp_path / "journal.db").read()


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "journal.db")) as connection:
        connection.execute("CREATE TABLE events (number INTEGER, what TEXT)")
    with pytest.raises(JournalError, match=r"journal\.db is damaged, or is no journal \(no such column"):
        Journal.at(tmp_path / "journal.db")
    with pytest.raises(JournalError, match="is damaged"), closing(Journal.read_only(tmp_path / "journal.db")) as old:
        old.read()


def test_a_journal_with_a_damaged_page_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = Journal.at(path)
    journal.append(*(RunPaused("x" * 2000) for _ in range(100)))
    journal.close()
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\xff" * 20_000)
    with pytest.raises(JournalError, match=r"journal\.db is damaged, or is no journal .*put a copy of it back"):
        Journal.read_only(path).read()


APPLIED = '{"workunit": "j_e0001_s001_a0_v000000", "bytes_up": 1, "host": "a"}'
DAMAGED: dict[str, tuple[object, object, object]] = {
    "no JSON": (1.0, "update_superseded", "not JSON"),
    "deep nesting": (1.0, "update_superseded", "[" * 100_000),
    "deep nesting of objects": (1.0, "update_superseded", '{"a":' * 100_000),
    "a number of 5000 digits": (1.0, "update_superseded", APPLIED.replace("1,", "9" * 5000 + ",")),
    "a number of 30 digits": (1.0, "update_superseded", APPLIED.replace("1,", "9" * 30 + ",")),
    "a list": (1.0, "run_finished", "[]"),
    "a text": (1.0, "run_finished", '"a"'),
    "null": (1.0, "run_finished", "null"),
    "a field of another type": (1.0, "update_superseded", APPLIED.replace('"a"', "5")),
    "a field that is true": (1.0, "update_superseded", APPLIED.replace("1,", "true,")),
    "a field that is no text": (1.0, "update_superseded", APPLIED.replace('"j_e0001_s001_a0_v000000"', "null")),
    "a field too few": (1.0, "update_superseded", '{"bytes_up": 1}'),
    "a field too many": (1.0, "run_finished", '{"more": 1}'),
    "versions that are none": (
        1.0,
        "rolled_back",
        '{"version": 3, "to": 1, "dropped": ["a"], "collapsed": 2, "measured": 0.1, "usual": 0.5}',
    ),
    "bytes": (1.0, "run_finished", b"\xff\xfe"),
    "text that is no UTF-8": (1.0, "run_finished", "CAST(x'7bff7d' AS TEXT)"),
    "a kind that is bytes": (1.0, b"\xff", "{}"),
    "an unknown kind": (1.0, "another", "{}"),
    "a time that is a text": ("yesterday", "run_finished", "{}"),
    "a time without an end": (float("inf"), "run_finished", "{}"),
}


@pytest.mark.parametrize("row", DAMAGED.values(), ids=DAMAGED.keys())
def test_whatever_stands_in_a_row_is_read_or_refused(tmp_path: Path, row: tuple[object, object, object]) -> None:
    path = tmp_path / "journal.db"
    Journal.at(path).close()
    fields = row[2] if str(row[2]).startswith("CAST") else "?"
    with closing(sqlite3.connect(path)) as connection, connection:
        arguments = row if fields == "?" else row[:2]
        connection.execute(f"INSERT INTO events (time_s, kind, key, fields) VALUES (?, ?, 'k', {fields})", arguments)
    with closing(Journal.at(path)) as journal:
        reads: list[Callable[[], object]] = [
            journal.read,
            lambda: list(journal.stream()),
            lambda: journal.events_with_key_prefix("k"),
        ]
        for read in reads:
            with pytest.raises(JournalError) as refused:
                read()
            assert "\n" not in str(refused.value)
            assert len(str(refused.value)) < 500


def test_a_row_with_damaged_fields_is_refused(tmp_path: Path) -> None:
    journal = Journal.at(tmp_path / "journal.db")
    journal.append(RunPaused("interrupted"))
    with closing(sqlite3.connect(tmp_path / "journal.db")) as connection, connection:
        connection.execute("UPDATE events SET fields = '{\"reason\": '")
    with pytest.raises(JournalError, match=r"journal\.db is damaged, or is no journal"):
        journal.read()


def test_a_read_only_journal_makes_and_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "100% of #1, what? ü" / "journal.db"
    with pytest.raises(JournalError, match="unable to open database file"):
        Journal.read_only(path)
    path.parent.mkdir()
    with pytest.raises(JournalError, match="unable to open database file"):
        Journal.read_only(path)
    assert not list(path.parent.iterdir())
    Journal.at(path).append(RunPaused("interrupted"))
    reader = Journal.read_only(path)
    with pytest.raises(JournalError, match="attempt to write a readonly database"):
        reader.append(RunPaused("interrupted"))
    assert [row.event for row in reader.read()] == [RunPaused("interrupted")]


def test_a_new_journal_may_be_opened_by_many_at_once(tmp_path: Path) -> None:
    together = threading.Barrier(8)

    def open_and_append(number: int) -> None:
        together.wait()
        journal = Journal.at(tmp_path / "journal.db")
        journal.append(EpochClosed(number, number), RunPaused("interrupted"))
        journal.close()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(open_and_append, range(8)))
    rows = Journal.at(tmp_path / "journal.db").read()
    assert {row.event.epoch for row in rows if isinstance(row.event, EpochClosed)} == set(range(8))
    assert len(rows) == 16


def test_the_mode_of_a_new_journal_is_switched_again_while_another_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with (
        closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other,
        closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as ours,
    ):
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            ours.execute("PRAGMA journal_mode = WAL")
        release = threading.Timer(0.2, other.execute, ["COMMIT"])
        release.start()
        _switch_to_wal(ours)
        release.join()
        assert ours.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_damaged_file_whose_pages_lead_in_circles_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vcdl.journal.journal._PAGE", 10)
    path = tmp_path / "journal.db"
    with closing(Journal.at(path)) as journal:
        for epoch in range(1, 2000):
            journal.append_at([(1.0, EpochClosed(epoch, epoch))])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'events'").fetchone()
    damaged = bytearray(path.read_bytes())
    page_bytes = int.from_bytes(damaged[16:18], "big")
    begin = (root - 1) * page_bytes
    assert damaged[begin] == 5, "an inner page of a table"
    cells = [int.from_bytes(damaged[begin + 12 + 2 * place :][:2], "big") for place in range(2)]
    first, second = (slice(begin + cell, begin + cell + 4) for cell in cells)
    damaged[second] = damaged[first]  # the second child is the first one again
    path.write_bytes(damaged)
    with closing(Journal.read_only(path)) as journal, pytest.raises(JournalError, match="is damaged"):
        list(journal.stream())


def test_the_newest_events_of_a_kind_and_the_event_of_a_key(tmp_path: Path) -> None:
    with closing(Journal.at(tmp_path / "journal.db")) as journal:
        for epoch in range(1, 6):
            journal.append(EpochClosed(epoch, 10 * epoch), RunPaused("interrupted"), time_s=100.0 * epoch)
        newest = journal.newest(EpochClosed.kind, 2)
        assert [recorded.event for recorded in newest] == [EpochClosed(5, 50), EpochClosed(4, 40)]
        assert journal.newest(StopDecided.kind, 2) == []
        found = journal.find("epoch:3")
        assert found is not None
        assert (found.event, found.time_s) == (EpochClosed(3, 30), 300.0)
        assert journal.find("epoch:30") is None
