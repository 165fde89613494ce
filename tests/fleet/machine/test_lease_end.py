"""The dead man's switch of a machine: the real program, without an agent, against the metadata of both clouds."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fleet.machine.machine import AGENT, MachineFolder
from tests.fleet.machine.metadata import AwsMetadata, GcpMetadata

pytestmark = pytest.mark.server


def look(machine: MachineFolder) -> str:
    """Run it once, as its timer does; returns what it says."""
    module = [sys.executable, "-uB", "-m", "vcdl_agent.lease_end", str(machine.config)]
    environment = {**os.environ, "PATH": machine.search_path}
    done = subprocess.run(module, cwd=AGENT.parent, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("since_s", "is_off"), [(925, False), (932, True)])
def test_a_machine_is_powered_off_half_a_minute_after_its_drain_time(
    since_s: float, is_off: bool, metadata: AwsMetadata | GcpMetadata, tmp_path: Path
) -> None:
    machine = MachineFolder(tmp_path, metadata, "http://a/", lease_s=1e9)
    metadata.mark(time.time() - since_s)
    look(machine)
    assert machine.is_powered_off is is_off


def test_without_metadata_the_last_known_lease_holds(metadata: AwsMetadata | GcpMetadata, tmp_path: Path) -> None:
    machine = MachineFolder(tmp_path, metadata, "http://a/", lease_s=1e9, drain_s=0)
    metadata.mark(time.time() - 20)
    look(machine)
    assert not machine.is_powered_off
    metadata.broken = True
    known = machine.folder / "state" / "until_s"
    known.write_text(str(int(known.read_text()) - 20))
    look(machine)
    assert machine.is_powered_off


@pytest.mark.parametrize(("lease_s", "is_off"), [(1e9, False), (-1e9, True)])
def test_a_machine_that_never_knew_a_lease_has_its_own_from_its_boot(
    lease_s: float, is_off: bool, metadata: AwsMetadata | GcpMetadata, tmp_path: Path
) -> None:
    metadata.broken = True
    machine = MachineFolder(tmp_path, metadata, "http://a/", lease_s=lease_s)
    machine.config.write_text(json.dumps({**json.loads(machine.config.read_text()), "state_folder": "/no/such"}))
    look(machine)
    assert machine.is_powered_off is is_off, "although nothing can be written"
