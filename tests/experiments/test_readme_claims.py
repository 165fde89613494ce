"""Each number that README promises, in small and by today's code; where one no longer holds, README must say another.

The small runs are of `examples/digits.yaml` in 20 shards, 8 epochs, ten slots, seeds 1 and 2: ten seconds each. Their
accuracies spread by 0.2 to 1.2 points, so the mean of two is right to 0.9 points, and no margin is smaller than one.
"""

import re
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import pytest

from benchmarks.experiments import experiment
from benchmarks.experiments.comparison import Row, compare
from benchmarks.experiments.conduct import conduct
from benchmarks.experiments.measured import RunFigures, measured
from benchmarks.experiments.planned_run import planned_runs
from tests.places import EXAMPLES, ROOT
from vcdl.job import load_job
from vcdl.journal.observer import RunObserver
from vcdl.models.build import build_model
from vcdl.run.folder import RunFolder
from vcdl.simulate.client_fleet import load_clients
from vcdl.simulate.simulation import simulate_times

pytestmark = [pytest.mark.nightly, pytest.mark.keras, pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(1200)]
README = re.sub(r"\s+", " ", (ROOT / "README.md").read_text(encoding="utf-8"))


def promises(*words: str) -> None:
    """README says this: whoever changes it looks here."""
    for each in words:
        assert each in README, f"README no longer says {each!r}: this test must prove what it says now"


def made(
    out: Path, name: str, only: Sequence[str], seeds: Sequence[int], overrides: Sequence[str] = ()
) -> list[RunFigures]:
    chosen = experiment(name).only(only)
    job_file = EXAMPLES / "digits.yaml"
    runs = planned_runs(chosen, job_file, out, seeds, () if chosen.has_own_problems else (8,), overrides)
    conduct(runs, 1, print)
    return [measured(run) for run in runs]


def rows(out: Path, name: str, *only: str) -> Mapping[str, Row]:
    """A row for each variant."""
    figures = made(out, name, only, (1, 2), ["data.shards=20"])
    return {row.variant: row for row in compare(figures, experiment(name).control).rows}


def points_below(control: Row, row: Row) -> float:
    assert control.mean is not None
    assert row.mean is not None
    return 100 * (control.mean - row.mean)


def virtual_s(out: Path, *fleet: str) -> float:
    """The mean time of README's own runs, eight epochs of 50 shards with the seeds 1 to 3, without training."""
    times_s = []
    for seed in (1, 2, 3):
        job = load_job(EXAMPLES / "fashion_mnist.yaml", ["stop.epochs=8", f"seed={seed}"])
        clients = load_clients(None, [*fleet, f"seed={seed}"])
        report = simulate_times(RunFolder(out / f"times-{len(list(out.iterdir()))}"), job, clients, RunObserver())
        assert report is not None
        times_s.append(report.wall_s)
    return fmean(times_s)


def test_losses_cost_nothing_but_time(tmp_path: Path) -> None:
    """Margin 1.5: lost runs spread by 1.2 points, the mean of two by 0.9. When they began again with the weights of the
    first attempt, until 28 November 2026, they were 1.9 and 3.6 below; today they are 1.1 and 0.4 above.
    """
    promises("with 30 % of all subtasks lost", "in 3.7 times the undisturbed time")
    row = rows(tmp_path, "losses", "^undisturbed$|30 % lost$|30 % lost, speeds")
    for variant in ("30 % lost", "30 % lost, speeds 4 ×"):
        assert points_below(row["undisturbed"], row[variant]) < 1.5
    ten = ("clients=10", "slots=1")
    undisturbed_s = virtual_s(tmp_path, *ten)
    assert virtual_s(tmp_path, *ten, "lost=0.3") / undisturbed_s == pytest.approx(3.7, abs=0.05)


def test_ten_slots_come_close_to_one_machine_in_a_tenth_of_its_time(tmp_path: Path) -> None:
    """Margin 2: README's own distance, one point, and one of noise. In small ten slots are 1.7 above."""
    promises("one machine alone has", "in a tenth of the time", "1 percentage point more accurate than ten machines")
    row = rows(tmp_path, "accuracy", "^serial$|ours .the default")
    assert points_below(row["serial"], row["ours (the default)"]) < 2.0
    alone_s = virtual_s(tmp_path, "clients=1", "slots=1", "jitter=0")
    assert virtual_s(tmp_path, "clients=10", "slots=1") / alone_s == pytest.approx(0.1, abs=0.005)


def test_int8_takes_a_fifth_of_the_bytes_and_costs_little(tmp_path: Path) -> None:
    """Margin 1: the noise alone. The header of a file counts more in small: 0.22 of the bytes."""
    promises("uploads compressed to a fifth (`int8`)", "points** lower")
    row = rows(tmp_path, "codecs", "^float32$|^int8, compressed$")
    full, coded = row["float32"].bytes_up, row["int8, compressed"].bytes_up
    assert full is not None
    assert coded is not None
    assert coded / full < 0.25
    assert points_below(row["float32"], row["int8, compressed"]) < 1.0


def test_three_attackers_of_ten_cost_little(tmp_path: Path) -> None:
    """A margin of 1 more, for one seed."""
    promises("three attackers among ten simulated hosts cost at most 2.2 points of accuracy")
    only = [
        "^digits, ",
        "honest, default|(alie|sign_flip), 3 of 10, 12x, default|late_sleeper_labels, 3 of 10, 6x, default",
    ]
    figures = {run.run.variant: run for run in made(tmp_path, "hostile", only, (2,))}
    honest = figures["digits, honest, default"]
    assert honest.honest.applied == 90
    for variant, run in figures.items():
        assert honest.final is not None
        assert run.final is not None
        assert 100 * (honest.final - run.final) < 3.2, variant


def test_the_model_has_as_many_weights_as_it_says() -> None:
    promises("105 866 weights")
    job = load_job(EXAMPLES / "first_job.yaml")
    built = build_model(job.model, (28, 28, 1), 10, "classification", 1)
    assert built.weights.size == 105_866


def test_the_smallest_job_takes_a_minute_of_two_cores(tmp_path: Path) -> None:
    """By processor time, as other processes share the cores: two cores have 120 s in a minute."""
    promises("no data set to download; about a minute on two cores")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "vcdl", "run", str(EXAMPLES / "digits.yaml"), "--out", str(tmp_path / "run")]
    subprocess.run([*command, "--set", "grid.workers=2"], check=True, stdout=subprocess.DEVNULL, cwd=tmp_path)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 120
