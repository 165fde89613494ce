"""What Prometheus is told, and that the alerts and the dashboard ask for nothing else."""

import json
import os
import re
import subprocess
import time
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import yaml
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from tests.places import ROOT
from tests.recorded_run import FIRST_SESSION, WHOLE_RUN, recorded
from tests.run_folders import make_run
from tests.web.asking import asking
from vcdl.journal.events import UpdateRefused
from vcdl.run.folder import RunLock
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
    assert told["vcdl_job_state"] == {("over", "finished"): 1, ("open", "waiting"): 1}
    assert told["process_resident_memory_bytes"][()] > 10 << 20
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


def _samples(text: str, name: str) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(text)
    return {(*one.labels.values(),): one.value for family in families for one in family.samples if one.name == name}


def test_each_state_of_a_job_is_told_and_an_end_for_a_day(tmp_path: Path) -> None:
    session, gone = recorded(FIRST_SESSION), WHOLE_RUN[:-1]
    make_run(tmp_path / "killed", gone, finished=False)
    make_run(tmp_path / "paused", session, finished=False)
    make_run(tmp_path / "waiting", gone, finished=False, host=BOINC)
    make_run(tmp_path / "unreadable", gone, finished=False).job_file.write_text("no: job")
    for name in ("failed", "failed-before"):
        folder = make_run(tmp_path / name)
        summary = json.loads(folder.summary_file.read_text())
        folder.summary_file.write_text(json.dumps({**summary, "stop_reason": "subtask_failed"}))
    make_run(tmp_path / "finished")
    make_run(tmp_path / "finished-before")
    for name in ("failed-before", "finished-before"):
        os.utime(tmp_path / name / "summary.json", (time.time() - 90_000,) * 2)
    running = make_run(tmp_path / "running", gone, finished=False)
    with RunLock(running):
        text = asking(tmp_path).get("/metrics").text
    states = ("killed", "paused", "waiting", "unreadable", "failed", "finished", "running")
    assert _samples(text, "vcdl_job_state") == {(state, state): 1 for state in states}
    counts = {("failed",): 2, ("finished",): 2}
    assert _samples(text, "vcdl_jobs") == {**{(state,): 1 for state in states}, **counts}


def _promtool(*arguments: str | Path) -> str:
    promtool = which("promtool")
    if promtool is None:
        if "CI" in os.environ:
            pytest.fail("there is no promtool here")
        pytest.skip("there is no promtool here")
    done = subprocess.run([promtool, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


ALERTS_OF_STATES = {
    ("running", True): {},
    ("running", False): {"VcdlJobStalled": "critical"},
    ("paused", False): {},
    ("waiting", False): {"VcdlJobUntended": "critical"},
    ("killed", False): {"VcdlJobUntended": "critical"},
    ("failed", False): {"VcdlJobGivenUp": "critical"},
    ("finished", False): {},
    ("unreadable", False): {"VcdlJobUnreadable": "warning"},
}
"""A job's state, and whether events come → what is raised, and how badly, in three hours."""


@pytest.mark.process
def test_each_state_of_a_job_raises_one_alert_at_most(tmp_path: Path) -> None:
    tests: list[dict[str, Any]] = []
    for (state, is_alive), alerts in ALERTS_OF_STATES.items():
        job = 'exported_job="digits",instance="h",job="vcdl"'
        series = [
            {"series": f'vcdl_job_state{{{job},state="{state}"}}', "values": "1+0x200"},
            {"series": 'up{instance="h",job="vcdl"}', "values": "1+0x200"},
            {"series": f"vcdl_job_info{{{job}}}", "values": "1+0x200"},
        ]
        if state not in ("failed", "finished", "unreadable"):
            events = "0+60x200" if is_alive else "0+0x200"
            series.append({"series": f"vcdl_job_last_event_timestamp_seconds{{{job}}}", "values": events})
        fires = [{"labels": f'{{alertname="{alert}", severity="{how}"}}', "value": 1} for alert, how in alerts.items()]
        asked = {
            "expr": 'sum by (alertname, severity) (ALERTS{alertstate="firing"})',
            "eval_time": "180m",
            "exp_samples": fires,
        }
        tests.append({"interval": "1m", "input_series": series, "promql_expr_test": [asked]})
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(DEPLOY / "alerts.yml")], "tests": tests}))
    _promtool("check", "rules", DEPLOY / "alerts.yml")
    _promtool("test", "rules", file)
