"""The log of a folder store: every record is found, however few of them are kept in memory."""

from pathlib import Path

import pytest

from vcdl.errors import StoreLost
from vcdl.stores import Applied
from vcdl.stores import commit_log as module
from vcdl.stores.commit_log import CommitLog

SUMS = ("0" * 16, "f" * 16)


def record(number: int, attempt: int = 0) -> Applied:
    return Applied(f"e0001_s{number:03d}", f"j_e0001_s{number:03d}_a{attempt}_v000000", number + 1, 0, 0.1 + number)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log of fifty commits, of which a process remembers four."""
    monkeypatch.setattr(module, "_RECENT", 4)
    path = tmp_path / "commits.log"
    log = CommitLog(path)
    log.make(SUMS)
    log.catch_up()
    for number in range(50):
        log.append(number + 1, number % 2, SUMS, [record(number)])
    assert_all_found(log, range(50))
    return path


def opened(path: Path) -> CommitLog:
    log = CommitLog(path)
    log.catch_up()
    return log


def assert_all_found(log: CommitLog, numbers: range) -> None:
    wanted = {record(number).subtask: record(number) for number in numbers}
    assert dict(log.find(list(wanted))) == wanted
    assert all(dict(log.find([subtask])) == {subtask: wanted[subtask]} for subtask in wanted)


def test_every_record_is_found_by_who_wrote_it_and_by_who_reads_it(path: Path) -> None:
    log = opened(path)
    assert (log.version, log.slot) == (50, 1)
    assert_all_found(log, range(50))
    assert dict(log.find(["e0001_s050", "e0002_s000"])) == {}


def test_records_that_were_restored_replace_all_others(path: Path) -> None:
    writer, reader = opened(path), opened(path)
    writer.append(20, 1, SUMS, [record(number, attempt=1) for number in range(20)], restored=True)
    writer.append(21, 0, SUMS, [record(30)])
    reader.catch_up()
    for log in (writer, reader, opened(path)):
        assert log.version == 21
        found = log.find([record(number).subtask for number in range(50)])
        assert found == {one.subtask: one for one in [*(record(n, attempt=1) for n in range(20)), record(30)]}


def test_a_record_that_cannot_be_read_any_more_is_no_new_subtask(path: Path) -> None:
    log = opened(path)
    text = bytearray(path.read_bytes())
    text[text.index(b"e0001_s003") + 3] ^= 1
    path.write_bytes(text)
    with pytest.raises(StoreLost, match="damaged"):
        log.find([record(3).subtask])


def test_the_records_after_a_version_are_those_since_the_last_restore(path: Path) -> None:
    writer = CommitLog(path)
    writer.catch_up()
    assert writer.records(47) == [record(47), record(48), record(49)]
    writer.append(20, 1, SUMS, [record(number, attempt=1) for number in range(20)], restored=True)
    writer.append(21, 0, SUMS, [record(20)])
    assert writer.records(18) == [record(18, attempt=1), record(19, attempt=1), record(20)]
