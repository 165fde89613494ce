"""An experiment for real, on the smallest job: killed in the middle, continued, and its results."""

import csv
import json
import os
import signal
from pathlib import Path

import pytest

from tests.end_to_end.vcdl_process import vcdl, vcdl_in_background, wait_until
from tests.places import EXAMPLES

pytestmark = [pytest.mark.process, pytest.mark.nightly]

MODULE = "benchmarks.experiments"
SETTINGS = ("figure-6", EXAMPLES / "digits.yaml", "--seeds", "1", "--epochs", "1", "--processes", "1")
VARIANTS = ("serial", "the paper's, P5C5T2", "ours, P5C5T2")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an experiment that was killed after its first run, and then done again."""
    out = tmp_path_factory.mktemp("experiment")
    killed = vcdl_in_background(*SETTINGS, "--out", out, module=MODULE)
    wait_until(lambda: finished(out), "the first run to end")
    killed.send_signal(signal.SIGKILL)
    killed.communicate()  # ends when nobody has our pipe open any more: its process has ended as well
    assert len(finished(out)) < 3  # and nobody continues without it
    first = {path: path.stat().st_mtime_ns for path in finished(out)}
    done = vcdl(*SETTINGS, "--out", out, "--docs", out / "docs", "--json", module=MODULE)
    assert done.returncode == 0, done.stderr
    assert f"3 runs, {len(first)} of them made already" in done.stderr
    assert all(path.stat().st_mtime_ns == time_ns for path, time_ns in first.items())
    assert json.loads(done.stdout) == json.loads((out / "docs" / "figure-6.json").read_text())
    return out


def finished(out: Path) -> list[Path]:
    return list(out.glob("*/summary.json"))


def test_every_variant_is_in_the_table_with_what_its_run_came_to(out: Path) -> None:
    rows = json.loads((out / "docs" / "figure-6.json").read_text())["rows"]
    assert [row["variant"] for row in rows] == list(VARIANTS)
    folders = {"serial": "serial-e01-s1", "ours, P5C5T2": "ours-p5c5t2-e01-s1"}
    for row in rows:
        if row["variant"] in folders:
            summary = json.loads((out / folders[row["variant"]] / "summary.json").read_text())
            assert (row["mean"], row["wall_s"]) == (
                summary["accuracy"]["test"],
                pytest.approx(summary["wall_s"], abs=0.001),
            )


def test_the_report_has_table_picture_data_and_the_command(out: Path) -> None:
    report = (out / "docs" / "figure-6.md").read_text()
    assert all(f"| {variant} | 1 |" in report for variant in VARIANTS)
    assert "figure-6.csv" in report
    assert "python -m benchmarks.experiments figure-6 " in report
    assert (out / "docs" / "figure-6.png").read_bytes().startswith(b"\x89PNG")
    with (out / "docs" / "figure-6.csv").open() as file:
        assert [(row["variant"], row["epoch"]) for row in csv.DictReader(file)] == [(name, "1") for name in VARIANTS]


def test_runs_with_other_settings_do_not_pass_for_these(out: Path) -> None:
    done = vcdl(*SETTINGS, "--out", out, "--set", "training.batch_size=8", module=MODULE)
    assert done.returncode == 6
    assert "holds a run with other settings: remove it, or choose another --out" in done.stderr


def test_an_experiment_that_does_not_exist_is_refused() -> None:
    done = vcdl("figure-7", module=MODULE)
    assert done.returncode == 3
    assert "figure-6" in done.stderr
    assert not os.path.exists("experiments")
