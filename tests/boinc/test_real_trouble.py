"""The server's own trouble on a real BOINC server (see test_real_server.py): it counts against no host, and rests
outlast a stop and another app version.
"""

import json
import subprocess
from pathlib import Path

import pytest

from tests.boinc.real_project import ON_A_PROJECT, TIMEOUT_S, RealProject, wait
from vcdl.boinc.grid.host_care import read_suspensions
from vcdl.boinc.grid.workunit_rows import IN_PROGRESS, VALIDATE_ERROR
from vcdl.journal.events import ResultRefused
from vcdl.run.folder import RunFolder
from vcdl.run.reading import events_of, read_report

JOB = """
name: trouble
model: {builtin: {name: mlp, units: [32]}}
data: {dataset: digits, shards: 8}
training: {learning_rate: 0.01}
validate: {every: epoch}
stop: {epochs: 200}
"""

pytestmark = [*ON_A_PROJECT, pytest.mark.timeout(1800)]


def submitted(real: RealProject, folder: Path) -> RunFolder:
    (folder / "job.yaml").write_text(JOB)
    return real.submit(folder / "job.yaml")


def lost(run: RunFolder) -> int:
    return sum(refused.refusal == "no_file" for refused in events_of(run, ResultRefused))


def applied(run: RunFolder) -> int:
    return read_report(run).totals.applied


def test_a_renewed_upload_key_counts_against_nobody(real: RealProject, tmp_path: Path) -> None:
    run, keys = submitted(real, tmp_path), real.path / "keys"

    with real.client(tmp_path / "one", cpus=1) as one, real.client(tmp_path / "two", cpus=1):
        one.wait_until(lambda: applied(run) >= 4, "updates are applied", timeout_s=TIMEOUT_S)
        for half in ("private", "public"):
            (keys / f"upload_{half}").rename(keys / f"upload_{half}.old")
        pair = [str(keys / "upload_private"), str(keys / "upload_public")]
        subprocess.run([real.project.bin / "crypt_prog", "-genkey", "1024", *pair], check=True, capture_output=True)
        (keys / "upload_private").chmod(0o640)
        assert "were signed with another key" in real.doctor("certificates")
        one.wait_until(lambda: lost(run) >= 4, "uploads are lost", timeout_s=TIMEOUT_S)
        assert read_suspensions(real.project).of == {}
        real.stop()
        wait(lambda: "transitioner" in real.down(), "the transitioner has ended")
        real.start()
        wait(lambda: not real.down(), "the transitioner signs with the new key")
        real.vcdl("stop", run.path.name)
        real.vcdl("resume", run.path.name)
        before = applied(run)
        one.wait_until(lambda: applied(run) >= before + 4, "tasks made anew come through", timeout_s=TIMEOUT_S)
        assert "were signed with this project's key" in real.doctor("certificates")
        assert read_suspensions(real.project).of == {}


def test_another_folder_in_the_place_of_upload_counts_against_nobody(real: RealProject, tmp_path: Path) -> None:
    run, upload = submitted(real, tmp_path), real.project.upload_dir
    with real.client(tmp_path / "one", cpus=1) as one, real.client(tmp_path / "two", cpus=1):
        one.wait_until(lambda: applied(run) >= 4, "updates are applied", timeout_s=TIMEOUT_S)
        before, refused, away = applied(run), lost(run), upload.with_name("upload.away")
        upload.rename(away)
        upload.mkdir()
        upload.chmod(0o2770)
        assert "is another one mounted over it" in real.doctor("upload folders")
        unchecked = "SELECT COUNT(*) FROM result WHERE outcome = 1 AND validate_state = 0"
        one.wait_until(lambda: int(str(real.rows(unchecked)[0][0])) >= 2, "uploads wait", timeout_s=TIMEOUT_S)
        assert lost(run) == refused
        subprocess.run(f"cp -a {upload}/* {away}/; rm -r {upload}", shell=True, check=True)
        away.rename(upload)
        one.wait_until(lambda: applied(run) >= before + 4, "what waited counts", timeout_s=TIMEOUT_S)
        assert (lost(run), read_suspensions(real.project).of) == (refused, {})


def test_a_rest_outlasts_a_stop_and_another_app_version_and_uploaded_work_keeps_its_credit(
    real: RealProject, tmp_path: Path
) -> None:
    run = submitted(real, tmp_path)
    broken = real.client(tmp_path / "broken", cpus=2, VCDL_PYTHON="/bin/false", PATH="/usr/bin:/bin")  # without Keras
    with real.client(tmp_path / "well", cpus=2) as well, broken as fails:
        fails.wait_until(lambda: read_suspensions(real.project).of, "it rests", timeout_s=TIMEOUT_S, asking=True)
        (host,) = read_suspensions(real.project).of
        assert [row["state"] for row in json.loads(real.vcdl("hosts", run.path.name, "--json"))].count("resting") == 1

        in_upload = "SELECT r.name FROM result r WHERE server_state = %s AND hostid <> %s"

        def uploaded() -> list[str]:
            """Results of which the file is here, and which are not reported."""
            names = [str(row[0]) for row in real.rows(in_upload, IN_PROGRESS, host)]
            return [name for name in names if any(real.project.upload_dir.glob(f"*/{name}_r*"))]

        (real.path / "stop_sched").touch()
        well.wait_until(uploaded, "an upload is here that cannot be reported", timeout_s=TIMEOUT_S)
        held = uploaded()
        real.vcdl("stop", run.path.name)
        wait(lambda: read_report(run).history.paused is not None, "the job is stopped")
        (real.path / "stop_sched").unlink()
        credit = "SELECT COUNT(*) FROM result WHERE granted_credit > 0 AND name IN %s"
        well.wait_until(
            lambda: int(str(real.rows(credit, tuple(held))[0][0])) == len(held),
            "it has its credit", timeout_s=TIMEOUT_S, asking=True,
        )  # fmt: skip

        real.stop()
        real.vcdl("project", "install", "--threads", "2")
        real.start()
        real.vcdl("resume", run.path.name)
        sent = "SELECT COUNT(*) FROM result WHERE hostid = %s"
        before, now = real.rows(sent, host), applied(run)
        well.wait_until(lambda: applied(run) > now + 2, "the other one trains on", timeout_s=TIMEOUT_S)
        asked = fails.log.count("Sending scheduler request")
        fails.update()
        fails.wait_until(lambda: fails.log.count("Sending scheduler request") > asked + 1, "it has asked", asking=True)
        assert real.rows(sent, host) == before
        assert host in read_suspensions(real.project).of
        versions = real.rows("SELECT COUNT(*) FROM host_app_version WHERE host_id = %s AND n_jobs_today > 9", host)
        assert int(str(versions[0][0])) >= 3
    # An upload that ends after its workunit was cancelled is deleted by BOINC, at times before its validator looks.
    refused = "SELECT r.name FROM result r JOIN workunit w ON w.id = r.workunitid WHERE outcome = %s AND error_mask = 0"
    assert real.rows(refused, VALIDATE_ERROR) == []
