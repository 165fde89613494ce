import time
from pathlib import Path

import pytest

from tests.boinc.grid.world import World
from tests.commands.test_hosts import RECORDED
from tests.run_folders import DEMO, make_run
from tests.web.asking import asking, csrf_of
from vcdl.boinc.grid.host_care import ban, banned_hosts
from vcdl.boinc.grid.host_report import facts_of
from vcdl.commands.hosts import hosts
from vcdl.job import save_job
from vcdl.report.alerts import AlertChannel
from vcdl.run.kind import BOINC
from vcdl.web.accounts import Accounts
from vcdl.web.catalogue import JobCatalogue
from vcdl.web.sessions import Role
from vcdl.web.watchman import Watchman

pytestmark = pytest.mark.boinc


def test_boinc_s_tables_tell_of_a_host_what_the_journal_cannot(world: World) -> None:
    for name in world.created(3):
        world.fail(name, exit_status=202 if name.startswith("mnist_e0001") else 195)
    assert facts_of(world.project, world.database, "mnist")["host-1"].suspension is None
    (name,) = world.created(1, job="other")
    world.report(name)
    world.update("result", world.result_of(name)["id"], granted_credit=2.5)
    world.update("result", world.result_of("mnist_e0003_s000_a0_v000000")["id"], outcome=4, server_state=5, hostid=1)
    ban(world.database, [1])
    facts = facts_of(world.project, world.database, "mnist")["host-1"]
    assert (facts.errors, facts.timeouts, facts.running, facts.credit, facts.banned) == (2, 1, 0, 0.0, True)
    assert facts.heard_of_s == pytest.approx(time.time(), abs=60)
    assert facts_of(world.project, world.database, "other")["host-1"].credit == 2.5


def test_a_task_given_up_as_too_late_counts_as_a_failure_where_its_deadline_had_not_come(world: World) -> None:
    for name in world.created(2):
        world.fail(name, exit_status=200)
    early, late = (row["id"] for row in world.rows("SELECT id FROM result WHERE exit_status = 200"))
    world.update("result", early, report_deadline=int(time.time()) + 600)
    world.update("result", late, report_deadline=int(time.time()) - 60)
    assert facts_of(world.project, world.database, "mnist")["host-1"].errors == 1


def test_the_report_of_a_project_s_job_says_who_is_banned(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    run = world.project.run_folder("demo")
    make_run(run.path, RECORDED, finished=False)
    run.kind_file.write_text(BOINC.name)
    save_job(DEMO.trusting("strangers"), run.job_file)
    (name,) = world.created(1, job="demo")
    world.send(name)
    ban(world.database, [1])
    world.report(name)
    hosts(run.path)
    told = capsys.readouterr().out
    (line,) = [line for line in told.splitlines() if line.startswith("host-1")]
    assert line.endswith("banned")


@pytest.mark.slow
def test_an_operator_bans_a_host_on_its_page_and_a_ban_by_hand_is_told(world: World, tmp_path: Path) -> None:
    run = world.project.run_folder("demo")
    make_run(run.path, RECORDED, finished=False)
    run.kind_file.write_text(BOINC.name)
    (name,) = world.created(1, job="demo")
    world.send(name)
    runs = run.path.parent
    (program := tmp_path / "tell").write_text(f'#!/bin/sh\necho "$1" >>{tmp_path}/told\n')
    program.chmod(0o755)
    told = tmp_path / "told"

    def look() -> str:
        told.write_text("")
        assert Watchman(JobCatalogue(runs), AlertChannel(command=(str(program),))).look() == []
        return "".join(line for line in told.read_text().splitlines() if line.startswith("host "))

    client = asking(runs)
    page = client.get("/hosts").text
    assert 'formaction="/hosts/host-1/ban"' in page
    assert client.post("/hosts/host-1/ban").status_code == 403
    assert look() == ""
    assert client.post("/hosts/host-1/ban", data={"csrf": csrf_of(page)}).status_code == 303
    assert banned_hosts(world.database) == {1}
    page = client.get("/hosts").text
    assert "banned" in page
    assert 'formaction="/hosts/host-1/unban"' in page
    assert look() == "host host-1: banned: BOINC's scheduler refuses it"
    assert look() == ""
    assert client.post("/hosts/host-77/ban", data={"csrf": csrf_of(page)}).status_code == 409
    assert client.post("/hosts/host-1/unban", data={"csrf": csrf_of(page)}).status_code == 303
    assert banned_hosts(world.database) == set()
    ada = asking(runs, logged_in=False)
    ada.post("/login", data={"token": Accounts(runs).add("ada", Role.SUBMITTER, 1)})
    page = ada.get("/hosts").text
    assert ada.post("/hosts/host-1/ban", data={"csrf": csrf_of(page)}).status_code == 403
