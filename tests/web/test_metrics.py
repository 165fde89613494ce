"""What Prometheus is told, and that the alerts and the dashboard ask for nothing else."""

import json
import re
import subprocess
from pathlib import Path
from shutil import which

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from tests.places import ROOT
from tests.recorded_run import WHOLE_RUN
from tests.run_folders import make_run
from tests.web.asking import asking
from vcdl.journal.events import UpdateRefused
from vcdl.run.kind import BOINC

DEPLOY = ROOT / "deploy" / "prometheus"


@pytest.fixture
def told(tmp_path: Path) -> dict[str, dict[tuple[str, ...], float]]:
    """Metric → its labels' values → value."""
    make_run(tmp_path / "over")
    events = [
        replace(one, event=replace(one.event, host="worker-2")) if isinstance(one.event, UpdateRefused) else one
        for one in WHOLE_RUN[:-1]
    ]
    make_run(tmp_path / "open", events, finished=False, host=BOINC)
    answer = asking(tmp_path).get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    samples: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return samples


def test_the_figures_are_those_of_status_and_only_open_jobs_have_a_label(
    told: dict[str, dict[tuple[str, ...], float]],
) -> None:
    assert told["vcdl_jobs"] == {("finished",): 1, ("waiting",): 1}
    assert told["vcdl_updates_applied_total"] == {("open",): 4}
    assert told["vcdl_updates_refused_total"] == {("open", "not_finite"): 1}
    assert told["vcdl_workunits_failed_total"] == {("open",): 1}
    assert told["vcdl_update_staleness_versions_sum"] == {("open",): 2}
    assert told["vcdl_job_validation_accuracy_ratio"] == {("open",): 0.8}
    assert told["vcdl_job_info"] == {("boinc", "open", "forecast", "file"): 1}


def test_alerts_and_dashboard_ask_for_metrics_that_exist(told: dict[str, dict[tuple[str, ...], float]]) -> None:
    sometimes = {"vcdl_job_eta_seconds", "vcdl_subtask_stage_seconds_sum"}  # of running jobs
    for name in ("alerts.yml", "grafana-dashboard.json"):
        asked = set(re.findall(r"\bvcdl_\w+", (DEPLOY / name).read_text(encoding="utf-8"))) - {"vcdl_job"}
        assert asked
        assert asked <= told.keys() | sometimes
    assert len(json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))["panels"]) == 12


@pytest.mark.process
def test_promtool_accepts_the_alerts() -> None:
    promtool = which("promtool")
    if promtool is None:
        pytest.skip("there is no promtool here")
    subprocess.run([promtool, "check", "rules", DEPLOY / "alerts.yml"], check=True, capture_output=True)
