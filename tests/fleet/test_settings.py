"""The fleet file: its values, its refusals, and the agreement of document, schema and examples."""

import re
import typing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pydantic
import pytest

from tests.fleet.fleet_files import AWS, fleet_file, settings_of
from tests.places import ROOT
from vcdl.errors import FleetError, JobError
from vcdl.fleet.project_settings import ProjectSettings
from vcdl.fleet.settings import (
    AlertSettings,
    CapacitySettings,
    FleetSettings,
    InstanceSettings,
    OnDemandSettings,
    PlaceSettings,
    Requirements,
    load_fleet_settings,
)

DOCUMENT = (ROOT / "docs" / "fleet.md").read_text(encoding="utf-8")


def refusal(folder: Path, *overrides: str, text: str = AWS) -> str:
    """The message, with `fleet.yaml` for the file's path."""
    with pytest.raises(JobError) as caught:
        settings_of(folder, *overrides, text=text)
    return str(caught.value).replace(str(folder) + "/", "")


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("capacity.target=-1", "capacity > target: expected a whole number from 0 to 100000, got -1"),
        ("capacity.target=90", "capacity > target: expected min ≤ target ≤ max, got 0 ≤ 90 ≤ 80"),
        ("capacity.max=many", 'capacity > max: expected a whole number ≥ 0, got "many"'),
        ("capacity.follow=queue", "capacity > project_dir: is missing; follow: queue needs the BOINC project's folder"),
        ("capacity.deadline=2026-12-01", "capacity > deadline: is used with `follow: queue` only; remove it"),
        ("capacity.unit=cores", 'capacity > unit: expected one of: vcpu, gpu, instance; got "cores"'),
        ("capacity=7", "capacity: expected keys indented below it, got 7"),
        ("cloud=azure", 'cloud: expected one of: aws, gcp; got "azure"'),
        ("cloud=gcp", "gcp_project: is missing; add the id of the GCP project"),
        ("gcp_project=vcdl-test", "gcp_project: is only used with `cloud: gcp`; remove it"),
        ("instances={types: []}", "instances: expected exactly one of types (a list that is not empty), requirements"),
        ("instances.requirements.vcpu=3", "instances > requirements > vcpu: unknown key; did you mean vcpus?"),
        ("instances.types=t3.large", 'instances > types: expected a list of names, such as [a, b], got "t3.large"'),
        ("places=[]", "places: expected a list, each entry with its keys: - {key: value, …}, got a list of 0"),
        ("places=[{region: us-east-1}, {zones: [a]}]", "places > 2 > region: is missing; add it"),
        ("places=[{region: us-east-1, zones: [a]}]", "places > 1 > zones: is only used with `cloud: gcp`; remove it"),
        (
            "places=[{region: us-east-1, network: lab}]",
            "places > 1 > network: is only used with `cloud: gcp`; remove it",
        ),
        ("project.url=boinc.example.org", "project > url: expected the project's URL, http://… or https://…"),
        ("project.account_key=abc", "project > account_key: unknown key; did you mean account_key_env?"),
        ("project.account_key_file=key", "project: expected exactly one of account_key_file, account_key_env"),
        ("tags.Team=a", "tags > Team: expected a key of a-z, 0-9, - and _, beginning with a letter"),
        ("tags.vcdl-fleet=a", "tags > vcdl-fleet: tags that start with vcdl- are reserved; choose another name"),
        ("tags.team=A B", 'tags > team: expected text of a-z, 0-9, - and _, got "A B"'),
        ("budget_usd=0", "budget_usd: expected a number > 0, got 0"),
        ("cooldown_s=0", "cooldown_s: expected a whole number from 30 to 86400, got 0"),
        ("capacity.unit=gpu", "image: is missing; `unit: gpu` needs one with NVIDIA's driver"),
        (
            "instances={requirements: {gpus: {min: 1}}}",
            "capacity > unit: expected gpu, as `instances > requirements` allow GPUs",
        ),
        ("idle_shutdown_s=5", "idle_shutdown_s: expected a whole number ≥ 600, got 5"),
        ("places=[{region: us-east-1}, {region: us-east-1}]", "places > 2 > region: us-east-1 already has a place"),
        ("capacity.on_demand={min: 41}", "capacity > on_demand > min: expected at most the target, 40"),
        ("drain_s=7201", "drain_s: expected at most lease_s, 7200 s, got 7201"),
        ("lease_s=86401", "lease_s: expected at most max_life_h, 86400 s, got 86401"),
        ("reconcile_every_s=1801", "reconcile_every_s: expected at most a quarter of lease_s, 1800 s, got 1801"),
        ("instances={requirements: {vcpus: {min: 8, max: 4}}}", "vcpus: expected min ≤ max, got 8 and 4"),
        ("project.url=http://boinc.example.org/", "project > url: sends the account key in the clear"),
        ("name=Fleet 1", 'name: expected 1 to 63 of a-z, 0-9, - and _, not beginning with - or _, got "Fleet 1"'),
    ],
)
def test_each_problem_is_one_line_that_says_where_and_what(tmp_path: Path, setting: str, problem: str) -> None:
    assert problem in refusal(tmp_path, setting)


def test_all_problems_are_listed_at_once_each_with_its_line(tmp_path: Path) -> None:
    text = AWS.replace("target: 40, max: 80", "target: 40, max: 20").replace("types", "typs")
    text = text.replace("region: us-east-1", "region: us-east-1, zones: [a]")
    assert refusal(tmp_path, text=text).splitlines()[:2] == [
        "fleet.yaml:4: capacity > target: expected min ≤ target ≤ max, got 0 ≤ 40 ≤ 20",
        "fleet.yaml:5: instances > typs: unknown key; did you mean types?",
    ]
    # Problems of the whole file show once its parts are right.
    assert refusal(tmp_path, text=text.replace("typs", "types").replace("max: 20", "max: 40")) == (
        "fleet.yaml:7: places > 1 > zones: is only used with `cloud: gcp`; remove it"
    )


def test_zones_of_another_region_are_refused(tmp_path: Path) -> None:
    gcp = "cloud=gcp", "gcp_project=vcdl-test", "places=[{region: us-central1, zones: [us-west1-a]}]"
    assert "places > 1 > zones: expected zones of us-central1" in refusal(tmp_path, *gcp)


def test_a_key_in_the_file_is_never_shown(tmp_path: Path) -> None:
    text = AWS.replace("account_key_env: VCDL_TEST_KEY", "account_key: s3cr3t")
    assert "s3cr3t" not in refusal(tmp_path, text=text)


def test_the_account_key_comes_from_the_environment_or_a_file(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    assert settings.project.account_key({"VCDL_TEST_KEY": " abc_123\n"}) == "abc_123"
    of_file = settings_of(tmp_path, "project={url: 'https://a.org/', account_key_file: keys/weak}")
    (tmp_path / "keys").mkdir()
    file = tmp_path / "keys" / "weak"
    file.write_text("12_ab\n")
    with pytest.raises(FleetError, match=r"other users can read the account key in .*: chmod 600"):
        of_file.project.account_key({})
    file.chmod(0o600)
    assert of_file.project.account_key({}) == "12_ab"


@pytest.mark.parametrize("key", ["", "two words", "naïve", "x" * 129, '"; rm -rf /'])
def test_a_malformed_account_key_is_refused_without_being_shown(tmp_path: Path, key: str) -> None:
    with pytest.raises(FleetError, match="VCDL_TEST_KEY contains no account key") as caught:
        settings_of(tmp_path).project.account_key({"VCDL_TEST_KEY": key})
    assert not key or key not in str(caught.value)


def test_a_key_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "project={url: 'https://a.org/', account_key_file: weak}")
    with pytest.raises(FleetError, match=r"cannot be read from .*weak: FileNotFoundError; write it there"):
        settings.project.account_key({})


def test_a_deadline_without_a_zone_is_in_utc(tmp_path: Path) -> None:
    queue = ("capacity.follow=queue", "capacity.project_dir=project")
    at = datetime(2026, 12, 1, 8, tzinfo=UTC)
    for text in ("2026-12-01T08:00", "2026-12-01T08:00Z", "2026-12-01T10:00+02:00"):
        capacity = settings_of(tmp_path, *queue, f"capacity.deadline={text}").capacity
        assert capacity.deadline == at
    assert capacity.project_dir == tmp_path / "project"


def test_requirements_without_gpus_mean_none(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "instances={requirements: {vcpus: {min: 4, max: 16}, memory_gb: {min: 8}}}")
    wanted = settings.instances.requirements
    assert wanted is not None
    assert wanted.met_by(4, 8.0, 0)
    assert wanted.met_by(16, 999.0, 0)
    assert not wanted.met_by(17, 8.0, 0)
    assert not wanted.met_by(4, 7.9, 0)
    assert not wanted.met_by(4, 16.0, 1)


@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "fleets").glob("*.yaml")), ids=lambda path: path.name)
def test_the_examples_load(path: Path) -> None:
    assert load_fleet_settings(path).capacity.target > 0


def test_the_documents_fleets_load(tmp_path: Path) -> None:
    blocks = re.findall(r"^```yaml\n(name:.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        load_fleet_settings(fleet_file(tmp_path, block))


SECTIONS: dict[str, type[pydantic.BaseModel]] = {
    "The file": FleetSettings, "project": ProjectSettings, "capacity": CapacitySettings, "on_demand": OnDemandSettings,
    "instances": InstanceSettings, "places": PlaceSettings, "alerts": AlertSettings,
}  # fmt: skip


@pytest.mark.parametrize("section", SECTIONS)
def test_the_document_has_every_key_with_its_default_and_no_other(section: str) -> None:
    found = re.search(rf"^#+ {section}\n(.*?)(?=^#|\Z)", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert found is not None
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", found[1], re.MULTILINE))
    fields = SECTIONS[section].model_fields
    expected = {key: _default(info) for key, info in fields.items() if key not in SECTIONS}
    assert rows == expected


def test_the_document_has_every_requirement() -> None:
    for key in Requirements.model_fields:
        assert f"`{key}`" in DOCUMENT


def _default(info: Any) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True)
    return "none" if value is None or (isinstance(value, typing.Sized) and len(value) == 0) else str(value)
