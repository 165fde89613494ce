"""Several jobs on a real BOINC server: fresh weights, shares that hold from the first minute and can be changed, a list
of the jobs. It needs the project of tests/boinc/real_project.py, and is skipped without.
"""

import json
from pathlib import Path

import pytest

from tests.boinc.real_project import ON_A_PROJECT, TIMEOUT_S, RealProject, wait
from vcdl.journal.events import SettingsChanged, UpdateApplied
from vcdl.run.folder import RunFolder
from vcdl.run.reading import events_of, read_report
from vcdl.wire.workunit import WorkunitName

JOB = """
name: {name}
model: {{builtin: {{name: mlp, units: [32]}}}}
data: {{dataset: digits, shards: 4}}
training: {{learning_rate: 0.01}}
validate: {{every: epoch}}
stop: {{epochs: {epochs}}}
"""

pytestmark = [*ON_A_PROJECT, pytest.mark.timeout(2400)]


def submitted(real: RealProject, folder: Path, name: str, epochs: int, *more: str) -> RunFolder:
    path = folder / f"{name}.yaml"
    path.write_text(JOB.format(name=name, epochs=epochs))
    return real.submit(path, *more)


def sent(real: RealProject, run: RunFolder) -> int:
    pattern = f"{run.path.name}\\_e%"
    return int(str(real.rows("SELECT COUNT(*) FROM result WHERE name LIKE %s AND sent_time > 0", pattern)[0][0]))


def test_jobs_share_the_clients_and_train_from_fresh_weights(real: RealProject, tmp_path: Path) -> None:
    first = submitted(real, tmp_path, "real-first", 2)
    with real.client(tmp_path / "client") as client:
        client.wait_until(
            lambda: read_report(first).totals.applied >= 2, "some are applied", timeout_s=TIMEOUT_S, asking=True
        )
        before = sent(real, first)
        second = submitted(real, tmp_path, "real-second", 1, "--set", "boinc.share=3")
        client.wait_until(lambda: sent(real, second), "the new job is sent", timeout_s=TIMEOUT_S, asking=True)
        assert sent(real, first) - before <= 4, "what a client may fetch before the new job has workunits"
        rows = json.loads(real.vcdl("jobs", "--json"))
        assert {row["job"]: row["part"] for row in rows if row["state"] == "running"} == {
            first.path.name: 0.25, second.path.name: 0.75,
        }  # fmt: skip

        real.vcdl("set", second.path.name, "boinc.share=1", "boinc.deadline_s=900")
        refused = real.run("set", second.path.name, "training.batch_size=3")
        assert refused.returncode != 0
        assert "only boinc.share" in refused.stderr
        (event,) = events_of(second, SettingsChanged)
        assert event.changes == "boinc.share=1 boinc.deadline_s=900.0"
        manifest = real.project.manifests / f"{second.path.name}.json"
        wait(lambda: '"share": 1,' in manifest.read_text(), "the work generator follows it")

        for run in (first, second):
            client.wait_until(run.summary_file.is_file, "the job is finished", timeout_s=2 * TIMEOUT_S, asking=True)
    updates = list(events_of(first, UpdateApplied))
    assert len({update.key for update in updates}) == 8
    assert read_report(first).totals.refused == 0
    assert any(update.base_version > WorkunitName.parse(update.workunit).base_version for update in updates)
    assert sum(update.staleness for update in updates) / len(updates) <= 1.5 * 2
    assert not any(path.name.startswith("vcdl_newest") for path in real.project.download_dir.glob("*/*"))
