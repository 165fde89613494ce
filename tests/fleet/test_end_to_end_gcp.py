"""`vcdl fleet` as a user runs it, against a fake Compute Engine through Google's client library."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.fleet_files import fleet_file
from tests.fleet.gcp.conftest import GCP
from tests.fleet.gcp.fake_gce import FakeGce
from tests.fleet.project_page import WEAK
from vcdl.cli import exit_code_of
from vcdl.errors import ExitCode
from vcdl.fleet.gcp.connection import ENDPOINT_VARIABLE

pytestmark = pytest.mark.server


@pytest.fixture
def gce(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGce]:
    with FakeGce() as server:
        monkeypatch.setenv(ENDPOINT_VARIABLE, server.url)
        monkeypatch.setenv("VCDL_TEST_KEY", WEAK)
        yield server


def fleet(*arguments: object) -> int:
    return int(exit_code_of(["fleet", *map(str, arguments)]))


def test_the_life_of_a_fleet(
    gce: FakeGce, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vcdl.fleet.open.weak_key", lambda url, key: key)
    file = fleet_file(tmp_path, GCP)
    compute = gce.compute
    compute.exhaust("us-central1-a", "e2-standard-8", left=2)
    assert fleet("up", file) == ExitCode.OK
    assert len(compute.ids()) == 5
    assert "of 40 vCPUs in 5 instances" in capsys.readouterr().out
    assert fleet("up", file) == ExitCode.OK  # a pass that sees them, so that one that vanishes later is lost
    compute.preempt(compute.ids()[0])
    assert fleet("scale", "48", file) == ExitCode.OK
    assert len(compute.ids()) == 6

    assert fleet("drain", file) == ExitCode.OK
    compute.stop(compute.ids()[0])  # its agent has finished and powered it off
    assert fleet("drain", file) == ExitCode.OK  # the next pass
    compute.settle()
    assert len(compute.ids()) == 5
    capsys.readouterr()
    assert fleet("status", file, "--json") == ExitCode.OK
    shown = json.loads(capsys.readouterr().out)
    assert [i["draining"] for i in shown["instances"] if i["state"] == "running"] == [True] * 5

    assert fleet("down", file) == ExitCode.OK
    assert compute.ids() == ()
    assert fleet("cost", file, "--json") == ExitCode.OK
    cost = json.loads(capsys.readouterr().out.partition("nothing is left")[2])
    assert (cost["instances"], cost["live"]) == (7, 0)
