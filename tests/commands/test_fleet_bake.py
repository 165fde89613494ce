"""`vcdl fleet bake` on a cloud in memory: its output and exit codes, and what `plan`, `up` and `list` say of images."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.commands.test_fleet import fleet, vcdl_fleet
from tests.fleet.fake_fleet import FakeFleet
from tests.fleet.fleet_files import AWS, fleet_file
from vcdl.errors import ExitCode, FleetError
from vcdl.fleet.bake import UBUNTU
from vcdl.fleet.machine import setup_hash

__all__ = ["fleet"]


@pytest.fixture
def setup(fleet: FakeFleet) -> str:
    hash = setup_hash(fleet.settings, UBUNTU)
    fleet.cloud.said = f"vcdl-setup: ready as an image {hash}\n"
    return hash


def test_bake_prints_what_to_write_into_the_fleet_file(
    fleet: FakeFleet, setup: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("VCDL_TEST_KEY")
    assert vcdl_fleet("bake", "--dry-run") == ExitCode.OK
    assert "make an image for us-east-1, end the instance" in capsys.readouterr().out
    assert fleet.cloud.asked == []
    monkeypatch.setattr("time.sleep", lambda s: fleet.cloud.clock.sleep(s))
    assert vcdl_fleet("bake") == ExitCode.OK
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "for fleet.yaml:",
        f"  - {{region: us-east-1, image: ami-{setup}}}",
    ]
    assert fleet.cloud.live == []
    assert vcdl_fleet("list") == ExitCode.OK
    assert f"image ami-{setup} in us-east-1\n" in capsys.readouterr().out


def test_an_old_image_is_told_and_can_be_removed_once_the_file_names_another(
    fleet: FakeFleet, setup: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("time.sleep", lambda s: fleet.cloud.clock.sleep(s))
    vcdl_fleet("bake")
    today = fleet.cloud.baked[f"ami-{setup}"]
    fleet.cloud.baked["ami-old"] = replace(today, id="ami-old", setup="0" * 12)
    fleet_file(Path.cwd(), AWS.replace("{region: us-east-1}", "{region: us-east-1, image: ami-old}"))
    for command in ("plan", "up"):
        capsys.readouterr()
        assert vcdl_fleet(command) == ExitCode.OK
        assert "image ami-old was baked with another set-up" in capsys.readouterr().out
    assert vcdl_fleet("bake", "--remove", "ami-old") == ExitCode.FLEET
    assert "ami-old is in fleet.yaml" in capsys.readouterr().err
    fleet_file(Path.cwd(), AWS.replace("{region: us-east-1}", f"{{region: us-east-1, image: {today.id}}}"))
    assert vcdl_fleet("bake") == ExitCode.OK
    assert "older ones cost, too: ami-old; end one with `vcdl fleet bake --remove" in capsys.readouterr().out
    assert vcdl_fleet("bake", "--remove", "ami-old", "--dry-run") == ExitCode.OK
    assert "ami-old" in fleet.cloud.baked
    assert vcdl_fleet("bake", "--remove", "ami-old") == ExitCode.OK
    assert "ami-old" not in fleet.cloud.baked
    assert vcdl_fleet("bake", "--remove", "ami-old") == ExitCode.FLEET
    assert f"ami-old was not baked for cifar; these were: {today.id}" in capsys.readouterr().err
    fleet.cloud.outage = FleetError("AWS refused describe_images: no")
    assert vcdl_fleet("bake") == ExitCode.FLEET
