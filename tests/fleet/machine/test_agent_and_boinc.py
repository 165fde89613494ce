"""The agent beside a real BOINC client with real training subtasks: updates are uploaded before the machine goes."""

import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.boinc.boinc_client import BoincClient
from tests.boinc.standin import Database, StandinProject, StandinServer
from tests.boinc.standin.states import Assimilate
from tests.boinc.test_real_client import (
    add_app_version,
    check_upload,
    create_work,
    is_ready,
    samples_in_checkpoint,
    stage_workunit,
)
from tests.client.workunit_folder import with_training, write_workunit
from tests.fleet.machine.machine import TIMEOUT_S, Machine
from tests.fleet.machine.metadata import AwsMetadata, GcpMetadata, served
from tests.store_servers import start_mariadb
from vcdl.boinc.project.app_version import ClientFiles
from vcdl.fleet.machine.vcdl_agent.watches import Gcp
from vcdl.wire.workunit import Workunit

pytestmark = [pytest.mark.boinc, pytest.mark.keras]

ENDLESS = replace(with_training(local_epochs=50_000), job="mnist", epoch=2, base_version=1)
WAITING = replace(ENDLESS, shard=16)


@dataclass
class World:
    """A fleet's machine, a cloud and a project."""

    metadata: AwsMetadata | GcpMetadata
    project: StandinProject
    client: BoincClient
    machine: Machine

    def trained_beside_one_that_waits(self) -> tuple[Workunit, Workunit]:
        """The workunit that is trained here, once it has a checkpoint, and the one that waits."""
        names = {f"{each.name}_0": each for each in (ENDLESS, WAITING)}
        self.client.wait_until(lambda: names.keys() <= self.client.tasks().keys(), "both are here", asking=True)
        self.client.wait_until(lambda: samples_in_checkpoint(self.client), "one is trained")
        started = next(name for name, task in self.client.tasks().items() if task.executing)
        (waits,) = names.keys() - {started}
        return names[started], names[waits]

    def reported_after_s(self) -> float:
        """Seconds from the beginning of the leaving to the last report, from the agent's log."""
        self.machine.wait_for("all is reported, after ", within_s=Gcp.give_up_s + TIMEOUT_S)
        (seconds,) = re.findall(r"all is reported, after ([\d.]+) s", self.machine.log)[-1:]
        return float(seconds)

    def tries_of(self, workunit: Workunit) -> list[int]:
        rows = self.project.rows("SELECT server_state FROM result WHERE name LIKE %s", f"{workunit.name}_%")
        return [row["server_state"] for row in rows]


@contextmanager
def world(folder: Path, metadata: AwsMetadata | GcpMetadata) -> Iterator[World]:
    with ExitStack() as stack:
        stack.enter_context(served(metadata))
        mariadb = stack.enter_context(start_mariadb(folder))
        project = StandinProject.make(folder / "project", Database.of(mariadb))
        add_app_version(project, ClientFiles.build().contents)
        workunits = (ENDLESS, WAITING)
        create_work(project, *(stage_workunit(project, write_workunit(folder / w.name, w), w) for w in workunits))
        stack.enter_context(StandinServer(project))
        client = BoincClient(
            folder / "client", project.url, project.account_key, environment={"VCDL_PYTHON": sys.executable}
        )
        stack.enter_context(client)
        boinccmd = [shutil.which("boinccmd"), "--unix_domain"]
        machine = Machine(folder / "machine", metadata, project.url, boinc_folder=str(client.folder), boinccmd=boinccmd)
        yield World(metadata, project, client, stack.enter_context(machine))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "metadata", [AwsMetadata(), pytest.param(GcpMetadata(), marks=pytest.mark.nightly)], ids=["aws", "gcp"]
)
def test_on_notice_a_partial_update_is_written_uploaded_and_reported_and_what_waited_goes_to_another_machine(
    metadata: AwsMetadata | GcpMetadata, tmp_path: Path
) -> None:
    with world(tmp_path, metadata) as here:
        trained, waited = here.trained_beside_one_that_waits()
        began_s = time.monotonic()
        metadata.notify()
        here.client.wait_until(lambda: is_ready(here.project, trained), "the update is with the project")
        took_s = time.monotonic() - began_s
        check_upload(here.project, tmp_path, trained, fraction=None)
        print(
            f"{metadata.cloud}: reported {here.reported_after_s():.1f} s after the agent knew; "
            f"with the project {took_s:.1f} s after the notice"
        )
        here.client.wait_until(lambda: len(here.tries_of(waited)) == 2, "there is another try of what waited")
        assert not here.client.tasks(), "and it does not come back to this machine"
        assert not here.machine.is_powered_off

        metadata.withdraw()
        here.machine.wait_until(
            lambda: not (here.client.project_folder / "vcdl_finish_now").exists(), "the machine may stay after all"
        )
        here.client.wait_until(lambda: here.client.tasks(), "it has work again", asking=True)


@pytest.mark.nightly
def test_gcp_preempts_with_a_shutdown_and_the_agent_ends_when_all_is_reported(tmp_path: Path) -> None:
    with world(tmp_path, GcpMetadata()) as here:
        trained, _ = here.trained_beside_one_that_waits()
        here.machine.system_state("stopping")
        assert here.machine.kill(signal.SIGTERM) == 0
        assert is_ready(here.project, trained), "the BOINC client and the network were there until then"
        check_upload(here.project, tmp_path, trained, fraction=None)


@pytest.mark.nightly
def test_a_drained_machine_trains_to_its_time_uploads_and_is_powered_off(tmp_path: Path) -> None:
    with world(tmp_path, AwsMetadata()) as here:
        trained, waited = here.trained_beside_one_that_waits()
        here.metadata.mark(time.time())
        here.client.wait_until(lambda: len(here.tries_of(waited)) == 2, "what waited is given back")
        (task,) = (name for name in here.client.tasks() if name.startswith(trained.name))
        assert here.client.tasks()[task].executing, "it may finish"
        here.metadata.mark(time.time() - 890)
        here.machine.wait_until(lambda: here.machine.is_powered_off, "it is powered off")
        (row,) = here.project.rows("SELECT assimilate_state FROM workunit WHERE name = %s", trained.name)
        assert row["assimilate_state"] == Assimilate.READY
