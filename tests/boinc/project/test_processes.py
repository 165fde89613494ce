"""The project's processes, as `vcdl status` tells of them."""

import json
from types import SimpleNamespace

import pytest

from tests.boinc.project.made_project import MadeProject
from tests.recorded_run import FIRST_SESSION, recorded
from tests.run_folders import make_run
from vcdl.boinc.grid.disk_room import DiskRoom
from vcdl.boinc.grid.workunit_rows import CLIENT_ERROR, NO_REPLY
from vcdl.boinc.project.processes import troubles
from vcdl.commands.jobs import jobs
from vcdl.commands.status import status
from vcdl.errors import ExitCode
from vcdl.run.folder import RunLock
from vcdl.run.kind import BOINC

pytestmark = pytest.mark.boinc


def test_a_job_whose_project_lacks_a_daemon_or_the_database_waits(
    made: MadeProject, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(made.project.run_folder("demo").path, recorded(FIRST_SESSION)[:-1], finished=False, host=BOINC)
    dead = "feeder, transitioner, script_validator not running (bin/start; cron must call bin/start --cron)"
    with RunLock(run):  # the work generator's
        assert status(run.path) is ExitCode.OK
        state, *figures = capsys.readouterr().out.splitlines()
        assert ": waiting (process " in state
        assert f"waits for    {dead}" in figures
        status(run.path, as_json=True)
        fields = json.loads(capsys.readouterr().out)
        assert (fields["state"], fields["troubles"]) == ("waiting", [dead])
        jobs(made.path)
        _, row, why = capsys.readouterr().out.splitlines()
        assert row.split()[:2] == ["demo", "waiting"], "also while its work generator holds the run and waits"
        assert why == f"the project waits for: {dead}"
    made.edit("config.xml", f"<db_name>{made.project.db_name}</db_name>", "<db_name>nowhere</db_name>")
    assert "nowhere" in troubles(made.path)[1]
    made.project.stop_daemons.touch()
    assert troubles(made.path)[0] == "the project is stopped (bin/start; cron must call bin/start --cron)"
    (made.path / "config.xml").unlink()
    assert troubles(made.path) == [], "another user's, perhaps"


def test_a_shortage_is_told_until_new_work_is_made_again(
    made: MadeProject, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(made.project.run_folder("demo").path, recorded(FIRST_SESSION)[:-1], finished=False, host=BOINC)
    free = SimpleNamespace(free=0)
    monkeypatch.setattr("shutil.disk_usage", lambda _: free)

    def told(gib: float) -> bool:
        free.free = int(gib * (1 << 30))
        DiskRoom(made.project, "demo").is_short()
        status(run.path)
        return f"{gib:.1f} GiB are free for" in capsys.readouterr().out

    with RunLock(run):
        assert [told(gib) for gib in (2.5, 1.5, 2.5, 3.5, 2.5)] == [False, True, True, False, False]


def test_tasks_that_boinc_makes_up_for_are_told(made: MadeProject, capsys: pytest.CaptureFixture[str]) -> None:
    made.install()
    run = make_run(made.project.run_folder("demo").path, recorded(FIRST_SESSION)[:-1], finished=False, host=BOINC)
    (app,) = made.standin.rows("SELECT id FROM app WHERE name = 'vcdl'")
    name = "demo_e0001_s000_a0_v000000"
    unit = made.standin.insert("workunit", create_time=1, name=name, appid=app["id"])
    host = made.standin.insert("host", create_time=1, domain_name="h")
    for number, outcome in enumerate((CLIENT_ERROR, NO_REPLY, NO_REPLY)):
        made.standin.insert("result", create_time=1, name=f"{name}_{number}", workunitid=unit, appid=app["id"],
            hostid=host, server_state=5, outcome=outcome, exit_status=1,
        )  # fmt: skip
    status(run.path)
    assert "at BOINC     1 tasks failed, 2 passed their deadline: sent again" in capsys.readouterr().out.splitlines()
