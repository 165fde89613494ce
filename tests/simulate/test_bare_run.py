"""The run without a folder: the same times as with one, whatever its clients do."""

import math
from pathlib import Path

import pytest

from tests.simulate.test_weightless import LOSSY, job, times
from vcdl.simulate.bare_run import simulated_s
from vcdl.simulate.client_fleet import ClientFleet, load_clients

VOLUNTEERS = ("second_copies=true", "timeout_s=86400", "checkpoint_every_s=60")


@pytest.mark.parametrize("kind", ["rolling", "epoch"])
@pytest.mark.parametrize(
    "fleet",
    [
        LOSSY,
        LOSSY.model_copy(update={"second_copies": True, "loss_report_s": None, "servers": 2}),
        load_clients(None, ("clients=30", "slots=1", "population=boinc", "subtask_s=7200", *VOLUNTEERS)),
        load_clients(None, ("clients=50", "slots=2", "population=spot", "subtask_s=3600", *VOLUNTEERS)),
    ],
    ids=["lossy", "copies", "boinc", "spot"],
)
def test_it_takes_as_long_as_the_run_with_a_folder(tmp_path: Path, fleet: ClientFleet, kind: str) -> None:
    assert simulated_s(job(kind=kind), fleet) == times(tmp_path / "run", fleet, job(kind=kind)).wall_s


def test_transfers_take_their_time_on_the_links_of_the_clients() -> None:
    fleet = ClientFleet(clients=4, slots=1, jitter=0.0, link_mb_per_s=1.0)
    assert simulated_s(job(), fleet, 10_000_000, 20_000_000) > simulated_s(job(), fleet) + 3 * 9 * 10.0


def test_a_job_that_is_given_up_takes_forever() -> None:
    assert simulated_s(job(), ClientFleet(clients=3, slots=1, lost=0.999999, loss_report_s=1.0)) == math.inf


def test_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    simulated_s(job(), LOSSY)
    assert list(tmp_path.iterdir()) == []
