"""The clients file: what it may say, and how mistakes in it are refused."""

import re
from pathlib import Path

import pytest

from tests.places import DOCS, ROOT
from vcdl.errors import JobError
from vcdl.fleet.settings import load_fleet_settings
from vcdl.job import load_job
from vcdl.run.folder import RunFolder
from vcdl.simulate.client_fleet import ClientFleet, load_clients, save_clients

DOCUMENT = (DOCS / "simulate.md").read_text(encoding="utf-8")


def test_a_timeout_that_is_not_given_follows_the_length_of_a_subtask() -> None:
    assert load_clients(None, ["subtask_s=7"]).result_timeout_s == 70
    assert load_clients(None, ["subtask_s=7", "timeout_s=20"]).result_timeout_s == 20


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("client: 3\n", "clients.yaml:1: client: unknown key; did you mean clients?"),
        ("clients: 3\nlost: 1\n", "clients.yaml:2: lost: expected a number between 0 and 1 (1 excluded), got 1"),
        ("speed_ratio: 0.5\n", "clients.yaml:1: speed_ratio: expected a number ≥ 1, got 0.5"),
        ("upload_s: -1\n", "clients.yaml:1: upload_s: expected a number ≥ 0, got -1"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "clients.yaml"
    path.write_text(text)
    with pytest.raises(JobError) as refused:
        load_clients(path)
    assert complaint in str(refused.value)


@pytest.mark.parametrize("example", sorted((ROOT / "examples" / "fleets").glob("*.yaml")), ids=lambda path: path.name)
def test_a_real_fleet_file_is_told_apart(example: Path) -> None:
    with pytest.raises(JobError) as refused:
        load_clients(example)
    assert str(refused.value) == (
        f"{example}: this is a fleet file (docs/fleet.md); give a file of simulated clients (docs/simulate.md)"
    )


def test_the_clients_file_of_a_run_is_no_fleet_file(tmp_path: Path) -> None:
    save_clients(ClientFleet(), RunFolder(tmp_path))
    with pytest.raises(JobError) as refused:
        load_fleet_settings(RunFolder(tmp_path).clients_file)
    assert str(refused.value) == (
        f"{RunFolder(tmp_path).clients_file}: this is a file of simulated clients (docs/simulate.md); "
        "give a fleet file (docs/fleet.md)"
    )


def test_a_file_of_hosts_is_not_taken_for_a_job(tmp_path: Path) -> None:
    (tmp_path / "hosts.yaml").write_text("hosts: {own: {count: 2}}\n")
    with pytest.raises(JobError, match=r"this is a file of hosts \(docs/planner.md\); give a job file"):
        load_job(tmp_path / "hosts.yaml")


def test_the_document_s_example_is_read(tmp_path: Path) -> None:
    block, groups = re.findall(r"^```yaml\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
    path = tmp_path / "clients.yaml"
    path.write_text(block)
    assert load_clients(path) == ClientFleet(speed_ratio=4.0, lost=0.3, loss_report_s=20.0)
    (tmp_path / "population.yaml").write_text(groups)
    population = load_clients(None, (f"population={tmp_path / 'population.yaml'}",)).population
    assert population is not None
    assert [group.share for group in population.groups] == [3, 1]


def test_a_frozen_fleet_is_read_back_as_it_was(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    fleet = ClientFleet(clients=4, checkpoint_every_s=None, speed_ratio=4.0)
    save_clients(fleet, folder)
    assert load_clients(RunFolder(tmp_path).clients_file) == fleet


def test_every_key_is_documented_with_its_default() -> None:
    for key, field in ClientFleet.model_fields.items():
        words = {None: "none"} if not isinstance(field.default, bool) else {False: "`false`"}
        default = words.get(field.default) or f"{field.default:g}"
        assert f"| `{key}` | {default} |" in DOCUMENT
