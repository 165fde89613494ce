"""The sentence names what takes most, and the change that the model computes."""

import math

import pytest
from msgspec import structs

from tests.recorded_run import applied, recorded, workunit
from vcdl.job import SMALL_FLEET
from vcdl.journal.events import Event, RunStarted, WorkunitCreated, WorkunitSent
from vcdl.planner.pace import Pace
from vcdl.profile.advice import JobSettings, advise
from vcdl.profile.stages import RunProfile

SHARDS = 32
MANY_EPOCHS = 1000
"""With so many, few shards are enough."""


def run_of(times_s: dict[str, float], train_s: float, fold_s: float = 0.1, every_s: float = 8.0) -> RunProfile:
    """Two hosts that train one subtask after the other, 8 s each, with these stages."""
    events: list[tuple[float, Event]] = [(0, RunStarted(resumed=False))]
    for number in range(2 * SHARDS):
        name, host = workunit(1, number), f"host-{number % 2}"
        at_s = (number // 2) * every_s
        told = structs.replace(
            applied(name, version=number + 1), host=host, times_s=times_s, train_s=train_s, fold_s=fold_s
        )
        events += [(at_s, WorkunitCreated(name)), (at_s, WorkunitSent(name, host, 10)), (at_s + 8.0, told)]
    return RunProfile.of(recorded(sorted(events, key=lambda one: one[0])))


def words(profile: RunProfile, settings: JobSettings | None = None) -> str:
    advice = advise(profile, settings or JobSettings(SHARDS, MANY_EPOCHS))
    assert advice is not None
    return advice.words()


def test_a_long_start_asks_for_fewer_shards() -> None:
    said = words(run_of({"start": 4.0, "first": 1.0}, train_s=3.0))
    assert said.startswith("start-up takes 63% of the ")
    # 0.9 s of 8 s is on the way, 2 s are training: with a sixteenth of the shards 32 s of 37.9 s.
    assert "set `data > shards` to " in said
    assert f"(it is {SHARDS})" in said
    assert float(said.split("runs about ")[1].split(" ×")[0]) == pytest.approx(3.4, abs=0.4)


@pytest.mark.parametrize("epochs", [1, 5, 30, 40, 60, 1000])
def test_the_advice_never_asks_for_fewer_shards_than_check_does(epochs: int) -> None:
    advice = advise(run_of({"start": 4.0, "first": 1.0}, train_s=3.0), JobSettings(SHARDS, epochs))
    assert advice is not None
    assert (advice.change is None) == (epochs < 30)
    asked = Pace.of(10_000, epochs, SHARDS, SMALL_FLEET).cures.get("data > shards", 0)
    if advice.change is None:
        assert f"`data > shards` of {math.ceil(800 / epochs)} or more" in advice.words()
    else:
        assert asked == 0, "check asks for more shards than there are"
        assert Pace.of(10_000, epochs, advice.change.value, SMALL_FLEET).cures == {}


def test_training_needs_more_hosts() -> None:
    assert "only more or faster hosts" in words(run_of({}, train_s=7.8))


def test_nothing_is_said_before_the_first_upload() -> None:
    assert advise(RunProfile(), JobSettings(SHARDS, MANY_EPOCHS)) is None


def test_a_full_server_asks_for_another() -> None:
    assert "set `grid > servers` to 2 (it is 1), and the job runs about 1.7 × as fast" in words(
        run_of({}, train_s=0.1, fold_s=7.9, every_s=16.0)
    )


def test_links_that_take_the_time_ask_for_a_codec() -> None:
    far = run_of({}, train_s=1.0)
    asked = "`transport` sends a part of its 1010 bytes"
    assert asked in words(far, JobSettings(2, MANY_EPOCHS, sends_all=True))
    assert asked in words(far, JobSettings(SHARDS, MANY_EPOCHS, sends_all=True)), "beside another change"
    assert "no key of the job" in words(far, JobSettings(2, MANY_EPOCHS)), "its uploads are small already"
    assert asked not in words(run_of({}, train_s=7.8), JobSettings(2, MANY_EPOCHS, sends_all=True))
