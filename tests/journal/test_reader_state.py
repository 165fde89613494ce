"""States that readers keep beside a journal: a shortcut, and never another figure than the events say."""

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.job_events import applied, created
from vcdl.journal import kept_state
from vcdl.journal.events import Recorded
from vcdl.journal.history import JobHistory
from vcdl.journal.journal import Journal
from vcdl.journal.kept_state import kept_history

KEPT = "journal.history.state"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A journal of two updates, whose readers keep what they folded from every second event on."""
    monkeypatch.setattr(kept_state, "EVENTS", 2)
    path = tmp_path / "run" / "journal.db"
    path.parent.mkdir()
    append(path, 1, 2)
    return path


def append(path: Path, *versions: int) -> None:
    with closing(Journal.at(path)) as journal:
        for version in versions:
            journal.append(created(f"e1 s{version}"), applied(f"e1 s{version}", version))


def read(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """The newest version as a reader has it, and how many events it folded for that."""
    folded: list[Recorded] = []
    follow: Callable[[JobHistory, Recorded], None] = JobHistory.follow

    def counted(self: JobHistory, recorded: Recorded) -> None:
        folded.append(recorded)
        follow(self, recorded)

    with monkeypatch.context() as patched, closing(Journal.read_only(path)) as journal:
        patched.setattr(JobHistory, "follow", counted)
        return kept_history(journal).advance(save=True).version, len(folded)


@pytest.mark.parametrize("later", [(), (3,), (3, 4, 5), (6, 7, 8, 9)])
def test_an_older_journal_that_is_put_back_is_read_as_it_is(
    path: Path, monkeypatch: pytest.MonkeyPatch, later: tuple[int, ...]
) -> None:
    shutil.copyfile(path, path.with_name("copy"))
    append(path, 3, 4, 5)
    assert read(path, monkeypatch) == (5, 10)
    shutil.copyfile(path.with_name("copy"), path)
    append(path, *later)
    assert read(path, monkeypatch) == (max(2, *later, 2), 4 + 2 * len(later))
    assert read(path, monkeypatch)[0] == max(2, *later, 2)


@pytest.mark.parametrize(
    "damaged",
    [
        b"", b"\n", b"{}\n", b"[]\nx", b'{"last_id": 4}', b"[" * 50_000,
        b'{"form": "", "last_id": 99999999999999999999, "last_event": null}\n',
    ],
)  # fmt: skip
def test_a_damaged_state_is_folded_again(path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bytes) -> None:
    path.with_name(KEPT).write_bytes(damaged)
    assert read(path, monkeypatch) == (2, 4)
    assert read(path, monkeypatch) == (2, 0)
    whole = path.with_name(KEPT).read_bytes()
    for cut in (len(whole) // 2, len(whole) - 1):
        path.with_name(KEPT).write_bytes(whole[:cut])
        assert read(path, monkeypatch) == (2, 4)


def test_who_may_write_nothing_reads_all_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.with_name(KEPT).mkdir()
    assert read(path, monkeypatch) == read(path, monkeypatch) == (2, 4)
    assert not list(path.parent.glob(".*")), "nothing half written is left"
