"""Instances and BOINC hosts are matched by the machine's name."""

from pathlib import Path

import pytest

from tests.boinc.conftest import mariadb
from tests.boinc.grid.conftest import world
from tests.boinc.grid.world import World
from vcdl.errors import GridError
from vcdl.fleet.project import ProjectDatabase, instances_of_hosts

__all__ = ["mariadb", "world"]  # fixtures


def test_a_machine_is_matched_by_its_name_with_or_without_a_domain() -> None:
    hosts = [
        ("host-1", "i-0a1b"),
        ("host-2", "i-0c2d.us-east-2.compute.internal"),
        ("host-3", "vcdl-cifar-7f3a.us-central1-a.c.mine.internal"),
        ("host-4", "a-volunteer"),
        ("host-5", ""),
    ]
    instances = ["i-0a1b", "i-0c2d", "us-central1-a/vcdl-cifar-7f3a", "i-ffff"]
    assert instances_of_hosts(hosts, instances) == {
        "host-1": "i-0a1b",
        "host-2": "i-0c2d",
        "host-3": "us-central1-a/vcdl-cifar-7f3a",
    }


@pytest.mark.boinc
def test_the_hosts_of_a_project_are_named_as_its_journals_name_them(world: World) -> None:
    world.standin.insert("host", id=7, domain_name="i-0a1b.ec2.internal")
    assert ProjectDatabase(world.standin.path).hosts() == [("host-7", "i-0a1b.ec2.internal")]


def test_a_folder_without_a_project_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(GridError):
        ProjectDatabase(tmp_path).hosts()
