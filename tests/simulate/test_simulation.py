"""Where a simulated run may begin. What happens in one is tested in test_simulate.py."""

from pathlib import Path

import pytest

from benchmarks.experiments.training_here import TrainingHere
from vcdl.client.trainer import TrainerCache
from vcdl.commands.resume import resume
from vcdl.commands.stop import stop
from vcdl.errors import DataError, RunFolderError
from vcdl.job import Job
from vcdl.job.data import DataSettings
from vcdl.journal.observer import RunObserver
from vcdl.run.folder import RunFolder, RunIsBusy, RunLock
from vcdl.run.kind import SIMULATED
from vcdl.simulate.client_fleet import ClientFleet, save_clients
from vcdl.simulate.simulation import simulate

pytestmark = [pytest.mark.process, pytest.mark.keras]

JOB = Job.model_validate({"name": "tiny", "model": {"builtin": "mlp"}, "data": {"dataset": "digits", "shards": 2}})


@pytest.mark.parametrize("made", [(), ("host",), ("host", "data"), ("host", "data", "slots", "uploads")])
def test_a_folder_that_another_process_is_making_is_busy_at_every_moment(tmp_path: Path, made: tuple[str, ...]) -> None:
    folder = RunFolder(tmp_path / "taken")
    folder.make()
    with RunLock(folder):
        for part in made:
            if part == "host":
                folder.kind_file.write_text("simulated\n")
            else:
                (folder.path / part).mkdir()
        with pytest.raises(RunIsBusy):
            simulate(folder, JOB, ClientFleet(), RunObserver())


def test_what_is_left_when_it_is_killed_while_it_makes_room_is_known_as_a_simulation_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path / "again")
    folder.create(SIMULATED)
    save_clients(ClientFleet(), folder)
    (folder.path / "journal.db").touch()

    def killed(_: ClientFleet, __: RunFolder) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("vcdl.simulate.simulation.save_clients", killed)
    with pytest.raises(KeyboardInterrupt):
        simulate(folder, JOB, ClientFleet(), RunObserver())
    assert folder.kind is SIMULATED
    assert not folder.journal_file.exists()


def test_a_simulation_is_begun_anew_and_never_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create(SIMULATED)
    save_clients(ClientFleet(), folder)
    folder.job_file.touch()
    how = "`vcdl simulate` with the same settings starts it again"
    stop(folder.path)
    assert how in capsys.readouterr().out
    with pytest.raises(RunFolderError, match=how):
        resume(folder.path)


def test_a_job_whose_subtasks_are_all_lost_is_given_up_as_a_real_one(tmp_path: Path) -> None:
    fleet = ClientFleet(clients=2, slots=1, lost=0.999999)
    folder = RunFolder(tmp_path / "run")
    report = simulate(folder, JOB, fleet, RunObserver(), TrainingHere(folder, TrainerCache()))
    assert report is not None
    assert report.is_given_up
    again = 3 * JOB.grid.tries  # both clients fail again at a subtask, and there is no other
    assert again <= report.totals.failed <= 4 * (again + 2)  # two epochs of two shards were open
    assert list(folder.store.glob("*")) == [], "nobody resumes it"


@pytest.mark.parametrize("existed", [False, True])
def test_nothing_is_left_of_a_job_that_is_refused(tmp_path: Path, existed: bool) -> None:
    folder = RunFolder(tmp_path / "refused")
    if existed:
        folder.path.mkdir()
    missing = JOB.model_copy(update={"data": DataSettings(npz=tmp_path / "none.npz", shards=2)})
    with pytest.raises(DataError, match=r"none\.npz"):
        simulate(folder, missing, ClientFleet(), RunObserver(), TrainingHere(folder, TrainerCache()))
    assert list(tmp_path.rglob("*")) == ([folder.path] if existed else [])
