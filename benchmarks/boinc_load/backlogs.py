"""What waits at each stage of a BOINC server, looked at again and again while it works."""

import threading
import time
from dataclasses import dataclass, field

from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.errors import GridError

LOOKS_EVERY_S = 2.0

_COUNTS = {
    "unsent": "SELECT COUNT(*) FROM result WHERE appid = %s AND server_state = 2",
    "in progress": "SELECT COUNT(*) FROM result WHERE appid = %s AND server_state = 4",
    "validator": "SELECT COUNT(*) FROM workunit WHERE appid = %s AND need_validate = 1",
    "assimilator": "SELECT COUNT(*) FROM workunit WHERE appid = %s AND assimilate_state = 1",
    "file_deleter": "SELECT COUNT(*) FROM workunit WHERE appid = %s AND file_delete_state = 1",
    "transitioner": "SELECT COUNT(*) FROM workunit WHERE appid = %s AND transition_time < UNIX_TIMESTAMP() - 1",
}
STAGES = ("transitioner", "validator", "assimilator", "file_deleter")
"""Stages that work off what waits for them."""


@dataclass
class Backlogs:
    """Counts by stage, one for each look."""

    counts: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in _COUNTS})
    away: int = 0
    """Looks at which the database did not answer."""

    def mean(self, name: str) -> float:
        counts = self.counts[name]
        return sum(counts) / len(counts) if counts else 0.0

    def growth(self, name: str) -> float:
        """Mean of the last third of the looks less that of the first."""
        counts = self.counts[name]
        third = len(counts) // 3
        return (sum(counts[-third:]) - sum(counts[:third])) / third if third else 0.0


class Watcher:
    """A thread that counts, with a connection of its own."""

    def __init__(self, project: BoincProject) -> None:
        self._project = project
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="backlogs")
        self.backlogs = Backlogs()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> Backlogs:
        self._end.set()
        self._thread.join()
        return self.backlogs

    def _watch(self) -> None:
        database = BoincDatabase(self._project)
        try:
            while not self._end.wait(LOOKS_EVERY_S - time.monotonic() % LOOKS_EVERY_S):
                try:
                    looked = {name: database.execute(query, database.app_id) for name, query in _COUNTS.items()}
                except GridError:
                    self.backlogs.away += 1
                    continue
                for name, rows in looked.items():
                    self.backlogs.counts[name].append(int(rows[0][0]))
        finally:
            database.close()
