"""Debian's real BOINC client against the stand-in server: the protocol with a shell script, then our launcher,
zipapp and templates.
"""

import gzip
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.boinc.boinc_client import BoincClient
from tests.boinc.standin import Database, StandinProject, StandinServer, cancel
from tests.boinc.standin.states import Assimilate, Error, Outcome
from tests.client.workunit_folder import SAMPLES, SIZE, freeze_hidden, with_training, write_workunit
from tests.store_servers import start_mariadb
from vcdl.boinc.grid.frozen_input import with_frozen
from vcdl.boinc.project.app_version import ClientFiles
from vcdl.checks import UploadCheck
from vcdl.files.shipped import shipped_folder
from vcdl.wire.layout import Layout
from vcdl.wire.workunit import Workunit

pytestmark = [pytest.mark.boinc, pytest.mark.keras]

PLATFORM = "x86_64-pc-linux-gnu"
MOST_BYTES = 1_000_000


@pytest.fixture
def project(tmp_path: Path) -> Iterator[StandinProject]:
    with start_mariadb(tmp_path) as mariadb:
        yield StandinProject.make(tmp_path / "project", Database.of(mariadb))


def add_app_version(project: StandinProject, files: dict[str, tuple[bytes, int]]) -> None:
    folder = project.path / "apps" / "vcdl" / "1.00" / PLATFORM
    folder.mkdir(parents=True)
    for name, (content, mode) in files.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(mode)
    project.update_versions()


def create_work(project: StandinProject, *lines: str, template: str = "vcdl_in.xml") -> None:
    """Real templates, and create_work's real interface."""
    for name in ("vcdl_in.xml", "vcdl_out.xml"):
        text = (shipped_folder("templates") / name).read_text().replace("@max_nbytes@", str(MOST_BYTES))
        (project.path / "templates" / name).write_text(text)
    given = (project.path / "templates" / "vcdl_in.xml").read_text()
    (project.path / "templates" / "vcdl_in_frozen.xml").write_text(with_frozen(given))
    templates = ["--wu_template", f"templates/{template}", "--result_template", "templates/vcdl_out.xml"]
    bounds = ["--rsc_fpops_est", "1e11", "--rsc_fpops_bound", "1e15", "--delay_bound", "3600"]
    done = subprocess.run(
        ["bin/create_work", "--appname", "vcdl", *templates, *bounds, "--stdin"],
        cwd=project.path,
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def stage(project: StandinProject, source: Path, name: str) -> str:
    """Staged, with its packed form beside it; the name."""
    project.stage(source, name)
    path = project.config.download_path(name)
    path.with_name(f"{name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    return name


def shared_name(path: Path) -> str:
    """Named by content, as all shared inputs."""
    return f"vcdl_{hashlib.sha256(path.read_bytes()).hexdigest()[:32]}{path.suffix}"


def states(project: StandinProject) -> dict[str, tuple[int, int]]:
    """Assimilate state and error mask by workunit."""
    rows = project.rows("SELECT name, assimilate_state, error_mask FROM workunit")
    return {row["name"]: (row["assimilate_state"], row["error_mask"]) for row in rows}


SCRIPT = """#!/bin/sh
case "$(cat workunit.json)" in
    good) cat model.json params.h5 shard.npz > update.h5; echo 0 > boinc_finish_called ;;
    bad) echo "out of luck" >&2; exit 1 ;;
    slow) until grep -q "<abort/>" boinc_mmap_file; do sleep 0.2; done; exit 194 ;;
esac
"""


@pytest.mark.nightly
def test_results_come_back_failures_are_tried_again_cancelled_tasks_end_and_files_are_forgotten(
    project: StandinProject, tmp_path: Path
) -> None:
    file = "<file><physical_name>script_1.00</physical_name><main_program/></file>"
    version = f"<version><api_version>7.9.0</api_version>{file}</version>"
    add_app_version(project, {"script_1.00": (SCRIPT.encode(), 0o755), "version.xml": (version.encode(), 0o644)})
    shared = []
    for name in ("model.json", "params.h5", "shard.npz"):
        (tmp_path / name).write_bytes(name.encode() * 10_000)
        shared.append(stage(project, tmp_path / name, shared_name(tmp_path / name)))
    for name in ("good", "bad", "slow"):
        (tmp_path / name).write_text(name)
        stage(project, tmp_path / name, f"{name}.json")
    create_work(project, *(f"--wu_name {name} {name}.json {' '.join(shared)}" for name in ("good", "bad", "slow")))

    with (
        StandinServer(project) as server,
        BoincClient(tmp_path / "client", project.url, project.account_key, 3) as client,
    ):
        client.wait_until(lambda: states(project)["good"] == (Assimilate.READY, 0), "the good one is ready")
        (good,) = project.rows("SELECT r.* FROM result r JOIN workunit w ON w.canonical_resultid=r.id")
        upload = next(project.path.glob(f"upload/*/{good['name']}_r*_0"))
        assert upload.read_bytes() == b"".join(
            (tmp_path / name).read_bytes() for name in ("model.json", "params.h5", "shard.npz")
        )
        assert server.downloads_of(shared[2]) == 1

        client.wait_until(lambda: client.tasks()["slow_0"].executing, "the slow one runs")
        cancel(project, "slow")
        client.wait_until(lambda: not client.task_pids(), "the slow one has ended", asking=True)
        assert states(project)["slow"] == (Assimilate.READY, Error.CANCELLED)

        gave_up = (Assimilate.READY, Error.TOO_MANY_ERRORS)
        client.wait_until(lambda: states(project)["bad"] == gave_up, "the bad one has failed too often", asking=True)
        tries = project.rows("SELECT * FROM result WHERE name LIKE 'bad_%%'")
        assert [row["outcome"] for row in tries] == [Outcome.CLIENT_ERROR] * 3, "max_error_results is 2"
        assert all(b"out of luck" in row["stderr_out"] and row["exit_status"] == 1 for row in tries)

        # Only now: a task that names the file makes it sticky again.
        request = f"<delete_file_info>{shared[2]}</delete_file_info>\n"
        project.insert("msg_to_host", hostid=good["hostid"], xml=request)
        client.wait_until(
            lambda: shared[2] not in client.files, "the client has deleted the file it was told to", asking=True
        )
        assert shared[0] in client.files, "and keeps the others"


FIRST = replace(with_training(local_epochs=2), job="mnist", epoch=1, base_version=0)
ENDLESS = replace(with_training(local_epochs=50_000), job="mnist", epoch=2, base_version=1)


def test_a_task_trains_through_suspension_and_a_kill_and_shared_files_are_downloaded_once(
    project: StandinProject, tmp_path: Path
) -> None:
    add_app_version(project, ClientFiles.build().contents)
    lines = [stage_workunit(project, write_workunit(tmp_path / each.name, each), each) for each in (FIRST, ENDLESS)]
    create_work(project, *lines)
    client = BoincClient(
        tmp_path / "client", project.url, project.account_key, environment={"VCDL_PYTHON": sys.executable}
    )
    with StandinServer(project) as server, client:
        client.wait_until(lambda: is_ready(project, FIRST), "the first task is ready to be assimilated")
        check_upload(project, tmp_path, FIRST, fraction=1.0)

        task = f"{ENDLESS.name}_0"
        client.wait_until(lambda: client.tasks()[task].checkpoint_cpu_s > 0, "the second task announced a checkpoint")
        client.wait_until(lambda: client.tasks()[task].fraction > 0, "its progress shows")
        fraction = client.tasks()[task].fraction
        client.wait_until(lambda: client.tasks()[task].fraction > fraction, "its progress grows")

        client.suspend(task)
        client.wait_until(lambda: client.tasks()[task].active == "SUSPENDED", "the task is suspended")
        pids = client.task_pids()
        # The client tells the task up to a second later, and a busy machine later still.
        client.wait_until(lambda: stands_still(client, for_s=2), "the task stands still")
        samples = samples_in_checkpoint(client)
        client.resume(task)
        client.wait_until(lambda: samples_in_checkpoint(client) > samples, "it continues")
        assert client.task_pids() == pids, "in the same process"

        client.kill(tasks_too=False)
        client.wait_until(lambda: not client.task_pids(), "the task has noticed that its client is gone")
        samples = samples_in_checkpoint(client)
        client.start()
        client.wait_until(lambda: samples_in_checkpoint(client) != samples, "the task trains again")
        assert samples_in_checkpoint(client) > samples, "its first new checkpoint holds more than it had trained before"

        (client.project_folder / "vcdl_finish_now").touch()
        client.wait_until(lambda: is_ready(project, ENDLESS), "the second task is ready to be assimilated")
        check_upload(project, tmp_path, ENDLESS, fraction=None)
        shared = {name for name in client.files if name.startswith("vcdl_") and name.endswith((".npz", ".json"))}
        assert len(shared) == 2, "model and shard stay on the client"
        assert {server.downloads_of(name) for name in shared} == {1}


@pytest.mark.nightly
def test_a_client_fetches_frozen_weights_once_and_trains_beside_them(project: StandinProject, tmp_path: Path) -> None:
    add_app_version(project, ClientFiles.build().contents)
    units = [FIRST, replace(FIRST, shard=FIRST.shard - 1)]
    folders = [freeze_hidden(write_workunit(tmp_path / each.name, each), each) for each in units]
    frozen = shared_name(folders[0] / "frozen.h5")
    lines = [stage_workunit(project, *both) for both in zip(folders, units, strict=True)]
    lines = [f"{line} {stage(project, folders[0] / 'frozen.h5', frozen)}" for line in lines]
    create_work(project, *lines, template="vcdl_in_frozen.xml")
    client = BoincClient(
        tmp_path / "client", project.url, project.account_key, environment={"VCDL_PYTHON": sys.executable}
    )
    with StandinServer(project) as server, client:
        client.wait_until(lambda: all(is_ready(project, each) for each in units), "both tasks are ready")
        for each in units:
            check_upload(project, tmp_path, each, fraction=1.0, size=SIZE - 320)
        assert frozen in client.files, "it stays on the client"
        assert server.downloads_of(frozen) == 1


def stage_workunit(project: StandinProject, folder: Path, workunit: Workunit) -> str:
    """Stage what a work generator would; the line for create_work."""
    inputs = [folder / name for name in ("model.json", "params.h5", "shard.npz")]
    shared = [stage(project, path, shared_name(path)) for path in inputs]
    stage(project, folder / "workunit.json", f"{workunit.name}.json")
    return f"--wu_name {workunit.name} {workunit.name}.json {' '.join(shared)}"


def is_ready(project: StandinProject, workunit: Workunit) -> bool:
    assimilate_state, error_mask = states(project)[workunit.name]
    assert error_mask == 0
    return assimilate_state == Assimilate.READY


def check_upload(
    project: StandinProject, folder: Path, workunit: Workunit, fraction: float | None, size: int = SIZE
) -> None:
    """What lies in upload/ is an update of the workunit, by our own check; `fraction` of it, or any when None."""
    import keras

    layout = Layout.of(keras.models.model_from_json((folder / workunit.name / "model.json").read_text()))
    check = UploadCheck("mnist", layout, (SAMPLES,) * 18, workunit.training.local_epochs, initial_norm=10.0)
    (upload,) = project.path.glob(f"upload/*/{workunit.name}_0_r*_0")
    header = check.examine(upload, workunit.name)
    assert layout.size == size
    assert fraction in (None, header.fraction)


def stands_still(client: BoincClient, for_s: float) -> bool:
    """Whether no sample was trained for that long."""
    samples = samples_in_checkpoint(client)
    time.sleep(for_s)
    return samples_in_checkpoint(client) == samples


def samples_in_checkpoint(client: BoincClient) -> int:
    """How far the newest checkpoint in the one slot is; 0 when there is none."""
    for path in client.folder.glob("slots/*/checkpoint.npz"):
        with np.load(path) as file:
            return int(json.loads(file["header"].tobytes())["position"]["samples"])
    return 0
