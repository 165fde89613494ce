"""The pages of hosts, of the server and of fleets."""

import re
import time
from decimal import Decimal
from pathlib import Path

from msgspec.structs import replace

from tests.fleet.fleet_files import fleet_file
from tests.recorded_run import FIRST_SESSION, WHOLE_RUN, recorded
from tests.run_folders import make_run
from tests.web.asking import asking
from vcdl.errors.backoff import wait_until
from vcdl.fleet.instance import Ending, Instance, InstanceState, Pool
from vcdl.fleet.ledger import Ledger
from vcdl.fleet.ledger_rows import PricedRow
from vcdl.fleet.open import Fleet
from vcdl.fleet.state import FleetGoal, FleetState
from vcdl.journal.events import Recorded, UpdateApplied, WorkunitSent
from vcdl.web.catalogue import project_of

HOSTILE = '<img src=x onerror="alert(1)">'
POOL = Pool("aws", "t3.2xlarge", "us-east-1", "us-east-1a", "subnet-1")


def words_of(page: str) -> str:
    """The words of a page, each cell apart."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.partition("<main")[2]))


def fleet_with_ledger(folder: Path) -> Path:
    """The file of a fleet with an instance that is live, and one that was preempted."""
    file = fleet_file(folder)
    fleet, now_s = Fleet.of_file(file), time.time()
    price = PricedRow(
        "t3.2xlarge", "us-east-1", "us-east-1a", 0.0, Decimal("0.3328"), Decimal("0.1"), Decimal(0), "", ""
    )
    ledger = Ledger(fleet.folder.ledger_file, lambda _: price)
    running = Instance("i-live", POOL, 8, 0, InstanceState.RUNNING, now_s - 7200)
    gone = Instance(
        "i-gone", POOL, 8, 0, InstanceState.GONE, now_s - 7200, ended_s=now_s - 3600, ending=Ending.PREEMPTED
    )
    ledger.record_launched([running, gone], now_s - 7200)
    ledger.record_found([running, gone], now_s)
    fleet.folder.write(FleetState(FleetGoal.UP, last_pass_s=now_s - 30, alerts=("budget 50%",)))
    return file


def test_hosts_of_open_jobs_are_there_those_with_trouble_first(tmp_path: Path) -> None:
    sent = (31, WorkunitSent("demo_e0002_s000_a0_v000002", HOSTILE, 1))
    make_run(tmp_path / "demo", recorded([*FIRST_SESSION, sent]), finished=False)
    make_run(tmp_path / "finished")
    make_run(tmp_path / "same_hosts", recorded(FIRST_SESSION), finished=False)
    page = asking(tmp_path).get("/hosts").text
    assert "3 hosts with work of open jobs, a row for each host and job" in page
    assert "&lt;img src=x" in page
    assert "<img" not in page
    assert "/jobs/demo" in page
    assert "/jobs/finished" not in page


def test_a_hundred_and_fifty_three_hosts_are_on_one_page(tmp_path: Path) -> None:
    sent = [(31 + at, WorkunitSent(f"demo_e0002_s{at:03}_a0_v000002", f"pc-{at}", 1)) for at in range(153)]
    make_run(tmp_path / "demo", recorded([*FIRST_SESSION, *sent]), finished=False)
    page = asking(tmp_path).get("/hosts?job=demo").text
    known = len({event.host for _, event in FIRST_SESSION if isinstance(event, WorkunitSent)})
    assert f"{153 + known} hosts of demo" in page
    assert page.count("<tr>") == 1 + 153 + known
    assert all(f"pc-{at}<" in page for at in range(153))


def test_the_server_shows_backlog_and_machine(tmp_path: Path) -> None:
    make_run(tmp_path / "demo", recorded(FIRST_SESSION), finished=False)
    words = words_of(asking(tmp_path).get("/server").text)
    for part in ("Open jobs", "uploads waiting", "demo", "free on the disk of the runs", "load of 1, 5 and 15"):
        assert part in words
    (tmp_path / "project" / "vcdl" / "runs").mkdir(parents=True)
    (tmp_path / "project" / "config.xml").write_text("<boinc")
    assert project_of(Path("/runs")) is project_of(Path("/")) is None
    assert "Daemons" in words_of(asking(tmp_path / "project" / "vcdl" / "runs").get("/server").text)


def test_a_fleet_shows_its_instances_and_its_money(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    assert 'href="/fleets"' not in asking(runs).get("/").text
    client = asking(runs, fleets=[fleet_with_ledger(tmp_path)])
    page = client.get("/").text
    assert 'href="/fleets"' in page
    assert "0.10 $/h now, 0.30 $ so far" in page
    words = words_of(client.get("/fleets").text)
    said = r"1 instance, 0\.10 \$/h, 0\.30 \$ spent; up; alert: budget 50%; last pass \d+ s ago"
    assert re.search(said, words), words
    assert re.search(r"i-live t3.2xlarge us-east-1a preemptible live 2 h \S+ \S+ 0.100 0.20", words), words
    assert re.search(r"i-gone .* preempted", words)


def test_a_hosts_machine_and_traffic_are_shown_of_one_job_also_when_it_is_over(tmp_path: Path) -> None:
    told = [
        Recorded(row.id, row.time_s, replace(row.event, machine="vcdl 1, 4 × <b>", backend="jax"))
        if isinstance(row.event, UpdateApplied)
        else row
        for row in WHOLE_RUN
    ]
    make_run(tmp_path / "demo", told)
    client = asking(tmp_path)
    assert "0 hosts with work of open jobs" in client.get("/hosts").text
    assert wait_until(lambda: "jax, vcdl 1, 4 × &lt;b&gt;" in client.get("/hosts?job=demo").text, 10)
    assert client.get("/hosts?job=none").status_code == 404
