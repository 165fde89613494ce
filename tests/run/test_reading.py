"""A run that is followed from outside."""

from collections.abc import Sequence
from pathlib import Path

from vcdl.journal.events import WorkunitCreated, WorkunitSent
from vcdl.journal.journal import Journal
from vcdl.journal.observer import RunningTask, RunObserver
from vcdl.run.folder import RunFolder
from vcdl.run.reading import RunFollower


class Tasks(RunObserver):
    def __init__(self) -> None:
        self.told: tuple[list[tuple[str, str]], int] = ([], 0)

    def tasks(self, running: Sequence[RunningTask], waiting: int) -> None:
        self.told = [(task.workunit, task.host) for task in running], waiting


def test_what_clients_work_on_is_told_from_the_journal(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    names = [f"j_e0001_s00{shard}_a0_v000000" for shard in range(3)]
    journal = Journal.at(folder.journal_file)
    journal.append(*(WorkunitCreated(name) for name in names))
    journal.append(WorkunitSent(names[0], "host-1", 0))
    tasks = Tasks()
    following = RunFollower(folder, tasks)
    following.poll()
    following.tell_tasks()
    assert tasks.told == ([(names[0], "a client")], 2), "sent before anybody looked"
    journal.append(WorkunitSent(names[2], "host-2", 0))
    following.poll()
    following.tell_tasks()
    assert tasks.told == ([(names[0], "a client"), (names[2], "host-2")], 1)
    journal.close()
