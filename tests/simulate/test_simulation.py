"""Where a simulated run may begin. What happens in one is tested in test_simulate.py."""

from pathlib import Path

import pytest

from vcdl.commands.resume import resume
from vcdl.commands.stop import stop
from vcdl.errors import RunFolderError
from vcdl.job import Job
from vcdl.report.onlooker import Onlooker
from vcdl.run.folder import RunFolder, RunIsBusy, RunLock
from vcdl.simulate.fleet import FLEET_FILE, Fleet, save_fleet
from vcdl.simulate.simulation import simulate

JOB = Job.model_validate({"name": "tiny", "model": {"builtin": "mlp"}, "data": {"dataset": "digits", "shards": 2}})


@pytest.mark.parametrize("made", [(), ("fleet",), ("fleet", "data"), ("fleet", "data", "slots", "uploads")])
def test_a_folder_that_another_process_is_making_is_busy_at_every_moment(tmp_path: Path, made: tuple[str, ...]) -> None:
    folder = RunFolder(tmp_path / "taken")
    folder.make()
    with RunLock(folder):
        for part in made:
            if part == "fleet":
                save_fleet(Fleet(), folder)
            else:
                (folder.path / part).mkdir()
        with pytest.raises(RunIsBusy):
            simulate(folder, JOB, Fleet(), Onlooker())


def test_what_is_left_when_it_is_killed_while_it_makes_room_is_known_as_a_simulation_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path / "again")
    folder.create()
    save_fleet(Fleet(), folder)
    (folder.path / "journal.db").touch()

    def killed(_: Fleet, __: RunFolder) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("vcdl.simulate.simulation.save_fleet", killed)
    with pytest.raises(KeyboardInterrupt):
        simulate(folder, JOB, Fleet(), Onlooker())
    assert sorted(path.name for path in folder.path.iterdir()) == ["data", FLEET_FILE, "run.lock"]


def test_a_simulation_is_begun_anew_and_never_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create()
    save_fleet(Fleet(), folder)
    folder.job_file.touch()
    how = "`vcdl simulate` with the same settings begins it anew"
    stop(folder.path)
    assert how in capsys.readouterr().out
    with pytest.raises(RunFolderError, match=how):
        resume(folder.path)
