"""A stall that is made by hand shows as itself and as nothing else: real workers, a real disk, a real loop."""

import time
from pathlib import Path

import pytest
from msgspec import structs

from tests.places import EXAMPLES
from tests.profile.throttled_worker import STALL_S, VARIABLE
from tests.recorded_run import applied, recorded, workunit
from vcdl.job import load_job
from vcdl.journal.events import Event, RunStarted, WorkunitCreated, WorkunitSent
from vcdl.journal.observer import RunObserver
from vcdl.profile.differential import Measured, differential_runs
from vcdl.profile.over_boinc import stall_of
from vcdl.profile.show_stalls import draw_stalls, stall_lines, stall_sentence, stalls_json
from vcdl.profile.stages import AWAY, RunProfile
from vcdl.profile.stalls import (
    ALONE,
    COLD,
    FETCH,
    INTERCONNECT,
    LOOP,
    PREPARE,
    SERVER,
    TOGETHER,
    WARM,
    Stall,
    greatest,
    network_stall,
    stalls,
)
from vcdl.rules.base import Update
from vcdl.rules.vc_asgd import VcAsgd
from vcdl.wire.layout import Vector


class BusyServer(VcAsgd):
    """A server that takes its time for each upload."""

    def apply(self, server: Vector, update: Update) -> float:
        time.sleep(STALL_S)
        return super().apply(server, update)


@pytest.mark.nightly
@pytest.mark.process
@pytest.mark.server
@pytest.mark.slow
@pytest.mark.keras
@pytest.mark.parametrize(
    "stall", [FETCH, *(pytest.param(one, marks=pytest.mark.nightly) for one in (INTERCONNECT, PREPARE, SERVER))]
)
def test_a_stall_shows_as_itself_and_as_nothing_else(stall: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, stall)
    job = load_job(EXAMPLES / "digits.yaml", ("grid.workers=2", "data.shards=4"))
    if stall == SERVER:
        job = job.model_copy(update={"update": BusyServer()})
    measured = differential_runs(job, RunObserver(), "tests.profile.throttled_worker", rounds=3, runs_s=1.0)
    if COLD not in measured.times_s:
        pytest.skip("the page cache of this file system cannot be emptied")
    found = stalls(measured.times_s, measured.cut)
    shares = {one.name: one.share for one in found}
    assert shares[stall] > 0.3, measured
    assert max(share for name, share in shares.items() if name != stall) < shares[stall] / 2, measured
    assert f"without this {stall} stall" in stall_sentence(measured, found)


TIMES_S = {
    ALONE: (6.0, 6.0, 6.0),
    TOGETHER: (8.0, 8.0, 7.0),
    WARM: (10.0, 10.0, 16.0),
    COLD: (20.0, 12.0, 16.0),
    LOOP: (12.0, 12.5, 15.0),
}


def test_stalls_are_what_stash_defines_and_not_what_its_script_computes() -> None:
    shares = {stall.name: stall.share for stall in stalls(TIMES_S)}
    # The script's fetch stall would be (20 − 2) of 20.
    assert shares == pytest.approx({INTERCONNECT: 0.25, PREPARE: 0.2, FETCH: 2 / 12, SERVER: 2 / 12})
    assert network_stall(3.0, 4.0).share == 0.75
    assert network_stall(3.0, 4.0).gain == 1.75


@pytest.mark.parametrize(("every_s", "share"), [(8.0, 1.0), (4.0, 0.1)])
def test_the_way_to_a_host_is_no_stall_while_it_trains_another_subtask(every_s: float, share: float) -> None:
    events: list[tuple[float, Event]] = [(0, RunStarted(resumed=False))]
    for number in range(10):
        name, at_s = workunit(1, number), number * every_s
        told = structs.replace(applied(name, version=1), host="host-1", train_s=4.0, times_s={})
        events += [(at_s, WorkunitCreated(name)), (at_s, WorkunitSent(name, "host-1", 10)), (at_s + 8.0, told)]
    profile = RunProfile.of(recorded(sorted(events, key=lambda one: one[0])))
    assert profile.total().mean_s(AWAY) == 4.0
    assert stall_of(profile).share == pytest.approx(share)


def test_a_server_is_waited_for_once_in_a_whole_subtask() -> None:
    (server,) = (stall for stall in stalls(TIMES_S, cut=10) if stall.name == SERVER)
    assert server.share == pytest.approx(2 / 102)


def test_what_comes_and_goes_is_no_stall() -> None:
    found = stalls({ALONE: (1.0, 1.0, 1.0), TOGETHER: (1.4, 0.9, 1.02)})
    assert greatest(found) is None
    assert greatest([Stall(FETCH, 0.1, (0.3, 0.3, -0.1, -0.2, 0.3))]) is None
    measured = Measured(2, 1, 100, {ALONE: (1.0,), TOGETHER: (1.0,)})
    assert stall_sentence(measured, found).startswith(
        "no stall stands out on this machine: the time of its 2 workers goes"
    )


def test_runs_and_stalls_are_shown_in_words_json_and_a_picture(tmp_path: Path) -> None:
    measured = Measured(2, 4, 100, {run: times_s for run, times_s in TIMES_S.items() if run != COLD})
    found = stalls(measured.times_s, measured.cut)
    lines = "\n".join(stall_lines(measured, found))
    assert lines.startswith("the workers hold each other up 25% of the time: without this interconnect stall ")
    assert "1/4 of the job's" in lines
    assert "fetch         not measured" in lines
    assert "rounds differ by up to 36%" in lines
    assert stalls_json(measured, found)["stalls"][PREPARE]["by_round"] == [0.2, 0.2, 0.5625]
    draw_stalls(measured, found, tmp_path / "stalls.png", "demo")
    assert (tmp_path / "stalls.png").stat().st_size > 10_000
