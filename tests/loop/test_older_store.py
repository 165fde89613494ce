"""A store that comes back older, in the middle of a run with several servers: whatever the order, nothing is lost."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.end_to_end.vcdl_process import applied
from tests.examples import examples
from tests.loop.conftest import backups_on
from tests.memory_grid import Killed
from tests.served_run import ServedRun, noise
from tests.store_backups import Backups, FolderBackups, OverwritingBackups
from tests.store_servers import on_server
from vcdl.errors import StoreLost
from vcdl.journal.events import EpochClosed
from vcdl.journal.lineage import Lineage
from vcdl.local.upload_folder import UploadFolder
from vcdl.loop.parameter_server import ParameterServer
from vcdl.loop.recovery import restore_store
from vcdl.loop.refold import prove
from vcdl.run.folder import RestoreLock
from vcdl.run.reading import events_of

pytestmark = pytest.mark.server

WEIGHTS = 300
MOST_SERVERS = 4


@pytest.fixture(scope="module", params=["folder", "folder, overwritten", *map(on_server, ("redis", "mariadb"))])
def backups(request: pytest.FixtureRequest) -> Iterator[Backups]:
    if request.param.startswith("folder"):
        yield OverwritingBackups() if "overwritten" in request.param else FolderBackups()
        return
    with backups_on(request.param) as backups:
        yield backups


class Claims(UploadFolder):
    """The claims of a server that may die within this process."""

    may_claim = True

    def _lock(self, path: Path) -> bool:
        return self.may_claim and super()._lock(path)

    def end(self) -> None:
        for lock in self._claimed.values():
            lock.close()


@dataclass
class Servers:
    """Several servers of one run, driven as their processes drive them."""

    run: ServedRun
    running: dict[int, ParameterServer] = field(default_factory=dict)
    claims: dict[int, Claims] = field(default_factory=dict)

    def fold(self, number: int) -> None:
        """Fold what waits, as often as the store has to be repaired before."""
        if number not in self.running:
            self.start(number)
        for _ in range(5):
            try:
                self.running[number].run_once()
                return
            except StoreLost:
                self.running[number].restore()
        raise AssertionError("the store is lost again and again")

    def start(self, number: int) -> None:
        if number in self.running:
            self.running.pop(number).close()
        self.claims[number] = Claims(self.run.folder)
        self.running[number] = ParameterServer.of(self.run.run, self.run.run.journal(), self.claims[number])
        self.running[number].catch_up()

    def keep(self, number: int) -> None:
        """Close an epoch, as the work generator does."""
        folder, journal = self.run.folder, self.run.run.journal()
        store = self.run.run.store(journal)
        for _ in range(5):
            try:
                with RestoreLock(folder).restoring():
                    version = self.run.run.snapshots(store).keep_newest(durable=True)
                    journal.append(EpochClosed(number, version))
                return
            except StoreLost:
                restore_store(self.run.run, store, journal)
        raise AssertionError("the store is lost again and again")

    def snapshot(self) -> None:
        """Keep the newest version for new workunits, as the work generator does."""
        store = self.run.run.store(self.run.run.journal())
        for _ in range(5):
            try:
                self.run.run.snapshots(store).keep_newest()
                return
            except StoreLost:
                restore_store(self.run.run, store, self.run.run.journal())
        raise AssertionError("the store is lost again and again")

    def claim(self, number: int) -> None:
        """Claim what waits now, and nothing else from now on."""
        if number not in self.running:
            self.start(number)
        self.claims[number].claim()
        self.claims[number].may_claim = False

    def fold_claimed(self, number: int) -> None:
        """Fold what was claimed, and may claim again."""
        self.fold(number)
        self.claims[number].may_claim = True

    def die(self, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Fold what waits, and be killed before the journal has a row of it."""
        with monkeypatch.context() as patched, suppress(Killed):
            patched.setattr("vcdl.loop.assimilator.keep_upload", _kill)
            self.fold(number)
        self.running.pop(number).close()
        self.claims[number].end()


def _kill(*_: object, **__: object) -> None:
    raise Killed


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["fold", "fold", "die", "die overtaken", "start"]),
            st.integers(0, MOST_SERVERS - 1),
            st.integers(1, 3),
        ),
        st.tuples(st.sampled_from(["back up", "put back", "keep", "snapshot"]), st.integers(0, 2), st.just(0)),
    ),
    min_size=4,
    max_size=20,
)


LOST_TWICE = [("die overtaken", 0, 2), ("snapshot", 0, 0), ("put back", 0, 0), ("fold", 0, 1), ("put back", 0, 0)]
"""The snapshot has two updates without a row under the number of one that has a row."""
PUT_BACK_WITHOUT_ROWS = [
    ("fold", 0, 3), ("die", 0, 1), ("back up", 0, 0), ("put back", 1, 0), ("snapshot", 0, 0), ("put back", 0, 0),
    ("fold", 1, 1), ("put back", 1, 0),
]  # fmt: skip
"""A store of before comes back behind a restored one: its update without a row has the number of the restored."""
SEEN_BEFORE = [("die", 0, 3), ("snapshot", 0, 0), ("put back", 1, 0), ("fold", 1, 1)]
"""The journal knows nothing of the versions that the store lost, but a snapshot of one is there."""


@pytest.mark.sampled(2)
@given(steps=STEPS, servers=st.integers(2, MOST_SERVERS))
@example(steps=LOST_TWICE, servers=2)
@example(steps=PUT_BACK_WITHOUT_ROWS, servers=2)
@example(steps=SEEN_BEFORE, servers=2)
@examples(25)
def test_whatever_store_comes_back_the_weights_are_the_journals_replay(
    backups: Backups, tmp_path: Path, steps: Sequence[tuple[str, int, int]], servers: int
) -> None:
    path = Path(tempfile.mkdtemp(dir=tmp_path))
    run = ServedRun.new(path / path.name, noise(0, WEIGHTS), backups.url)
    running, made, brought = Servers(run), [backups.make(run)], 0
    epochs = 0
    with pytest.MonkeyPatch.context() as monkeypatch:
        for what, which, uploads in steps:
            match what:
                case "back up":
                    made.append(backups.make(run))
                case "put back":
                    backups.put_back(run, made[max(0, len(made) - 1 - which)])
                case "start":
                    running.start(which % servers)
                case "keep":
                    running.keep(epochs := epochs + 1)
                case "snapshot":
                    running.snapshot()
                case _:
                    other = (which + 1) % servers
                    for last in reversed(range(uploads + (what == "die overtaken"))):
                        run.bring(brought, noise(brought + 1, WEIGHTS))
                        brought += 1
                        if what == "die overtaken" and last == uploads:
                            running.claim(other)
                    if what == "fold":
                        running.fold(which % servers)
                    else:
                        running.die(which % servers, monkeypatch)
                    if what == "die overtaken":
                        running.fold_claimed(other)
        for number in range(servers):
            running.fold(number)
        running.keep(epochs + 1)
    assert run.waiting() == 0
    assert len(applied(run.folder.path)) == brought
    assert run.store.read()[1].tobytes() == run.replayed().tobytes()
    proof = prove(run.run, Lineage.of(events_of(run.folder, *Lineage.KINDS)))
    assert (proof.folded, proof.updates, proof.differing, proof.damaged) == (brought, brought, [], [])
    for server in running.running.values():
        server.close()
    run.store.drop()
