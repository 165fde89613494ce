"""Real boots of the user data: systemd, cloud-init, apt, pip and BOINC's client in a container, up to training."""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

import pytest

from tests.boinc.standin import Database, StandinProject, StandinServer
from tests.boinc.test_real_client import add_app_version, create_work, is_ready, stage_workunit
from tests.client.workunit_folder import with_training, write_workunit
from tests.fleet.fleet_files import settings_of
from tests.fleet.machine.metadata import AwsMetadata, served
from tests.fleet.machine.nspawn import base, booted, forget, network_apart, work_folder
from tests.places import ROOT
from tests.store_servers import start_mariadb
from vcdl.boinc.project.app_version import ClientFiles
from vcdl.fleet.bake import UBUNTU, baking_settings
from vcdl.fleet.machine import compressed, setup_hash, user_data
from vcdl.fleet.settings import FleetSettings

pytestmark = [pytest.mark.soak, pytest.mark.boinc, pytest.mark.keras, pytest.mark.server, pytest.mark.process]
pytestmark += [pytest.mark.timeout(5400)]
BOOTS = 2
"""Measured boots of each kind."""
GOAL_S = 90.0
BOINC_UNIT = ROOT / "vcdl/fleet/machine/boinc-client.conf"
_TOKEN = """
from urllib.request import Request, urlopen
headers = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
print(urlopen(Request("http://169.254.169.254/latest/api/token", None, headers, method="PUT"), timeout=5).status)
"""
ASKS = ("systemd-run", "--quiet", "--wait", "--pipe", "python3", "-c", _TOKEN)
"""A service that asks the metadata service."""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[StandinProject]:
    """A project with an app version, whose server runs."""
    with ExitStack() as stack:
        project = StandinProject.make(tmp_path / "project", Database.of(stack.enter_context(start_mariadb(tmp_path))))
        add_app_version(project, ClientFiles.build().contents)
        stack.enter_context(StandinServer(project))
        yield project


@pytest.mark.parametrize("release", ["bookworm", "noble"])
def test_a_machine_installs_and_trains_and_one_from_a_baked_image_trains_within_90_s(
    release: str, project: StandinProject, tmp_path: Path
) -> None:
    tree, settings = base(release), settings_of(tmp_path, f"project.url={project.url}")
    setup = setup_hash(settings, UBUNTU)
    bakes = compressed(user_data(baking_settings(settings, UBUNTU), "", setup))
    trained_s = []
    with work_folder() as folder:
        for boot in range(BOOTS):
            trains(project, settings, folder / f"{release}-plain-{boot}", tree)
        for boot in range(BOOTS):
            with booted(folder / f"bakes-{boot}", tree, user_data=bakes) as machine:
                print(f"{release}, baked: {machine.wait_to_hear(f'ready as an image {setup}'):.0f} s")
        for boot in range(BOOTS):
            disk, image = folder / f"{release}-baked-{boot}", folder / "bakes-0/disk"
            forget(image, tree)
            trained_s.append(trains(project, settings, disk, image, tree))
            assert not (disk / "disk/opt/vcdl").exists(), "nothing was installed"
            assert not (disk / "disk/var/log/dpkg.log").exists()
    assert median(trained_s) <= GOAL_S


def trains(project: StandinProject, settings: FleetSettings, folder: Path, *layers: Path) -> float:
    """Boot a machine that trains a workunit of its own; prints steps, returns the seconds to its first batch."""
    job, boot = folder.name.rsplit("-", 1)
    workunit = replace(with_training(local_epochs=2), job=job, epoch=2, base_version=1, shard=int(boot))
    create_work(project, stage_workunit(project, write_workunit(folder / "workunit", workunit), workunit))
    slots = "var/lib/boinc*/slots/*"
    with booted(folder, *layers, user_data=compressed(user_data(settings, project.account_key))) as machine:
        steps_s = {
            "cloud-init": machine.wait_to_hear("Cloud-init v."),
            "attached": machine.wait_to_hear("vcdl-setup: done"),
            "subtask begun": machine.wait(lambda: any(machine.disk.glob(f"{slots}/boinc_lockfile")), "a subtask"),
            "first batch": machine.wait(lambda: "first batch" in logs(machine.disk.glob(f"{slots}/stderr.txt")), "it"),
            "reported": machine.wait(partial(is_ready, project, workunit), "the report"),
        }
        load = os.getloadavg()[0]
        print(f"{folder.name}:", *(f"{step} {seconds:.1f} s," for step, seconds in steps_s.items()), f"{load=:.1f}")
        assert "active" not in machine.call("systemctl", "is-active", "ssh", "ssh.socket").split(), "nothing listens"
    return steps_s["first batch"]


def logs(paths: Iterable[Path]) -> str:
    """The text of files that may just have gone."""
    return "".join(path.read_text() for path in paths if path.exists())


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        ("lease", "drained: "),
        ("no agent", "the lease and its drain time are over since"),
        ("idle", "no subtask for 40 s: "),
        ("bake", "Powering off"),
    ],
)
def test_a_machine_that_nobody_looks_after_powers_itself_off(
    ends: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its set-up can never succeed: nothing but the metadata service can be reached, and not by BOINC's client."""
    tree, metadata = base("bookworm"), AwsMetadata()
    monkeypatch.setenv("SYSTEMD_NSPAWN_UNIFIED_HIERARCHY", "1")
    filters = ("--system-call-filter=bpf", "--capability=CAP_NET_ADMIN,CAP_BPF")
    short = {
        "drain_s": 5,
        "idle_shutdown_s": 40 if ends == "idle" else 1800,
        "max_life_h": 0.01 if ends == "bake" else 24,
    }
    settings = settings_of(tmp_path).model_copy(update=short)
    text = user_data(settings, "" if ends == "bake" else "key", "a1b2c3d4e5f6" if ends == "bake" else "")
    if ends == "bake":
        text = text.replace("\nruncmd:\n", "\nruncmd:\n- [sleep, infinity]\n")  # its boot never ends
    if ends == "no agent":
        text = text.replace("from .agent import", "from .nowhere import")
    given = compressed(text)
    with ExitStack() as stack:
        network, thread = stack.enter_context(network_apart())
        service = served(metadata, ("169.254.169.254", 80))
        thread.submit(service.__enter__).result()
        stack.push(service)
        metadata.mark(time.time() + (60 if ends in ("lease", "no agent") else 3600))
        folder = stack.enter_context(work_folder())
        machine = stack.enter_context(booted(folder / ends, tree, user_data=given, network=network, options=filters))
        if ends == "lease":
            machine.wait_to_hear("notice: none; lease:")
            assert machine.call(*ASKS) == "200\n"
            (denied,) = (line for line in BOINC_UNIT.read_text().splitlines() if line.startswith("IPAddressDeny="))
            assert machine.call(ASKS[0], f"--property={denied}", *ASKS[1:]) == ""
        said_s = machine.wait_to_hear(why)
        assert machine.process.wait(120) == 0, "it is off"
        print(f"{ends}: {said_s:.0f} s after the boot")
