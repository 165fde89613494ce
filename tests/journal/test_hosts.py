"""What a journal's events add up to for each host."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest

from tests.job_events import applied, failed, refused, w
from vcdl.journal.events import (
    Event,
    Recorded,
    ResultRefused,
    RunStarted,
    UpdateApplied,
    UpdateSuperseded,
    UploadScored,
    WorkunitSent,
)
from vcdl.journal.hosts import HostHistory, HostState

HONEST = [f"h{number}" for number in range(8)]
DIFFERENCES = (0.0, 1.0, -1.0, 0.5, -0.5)


class Fleet:
    """Hosts that bring upload after upload, each with a gain."""

    def __init__(self) -> None:
        self.history = HostHistory()
        self._shards: Iterator[int] = count()
        self._time_s = 0.0

    def follow(self, *events: Event) -> None:
        for event in events:
            self._time_s += 1.0
            self.history.follow(Recorded(0, self._time_s, event))

    def bring(self, host: str, gain: float | None = None) -> None:
        """An upload of a host, refused when it is quarantined."""
        shard = next(self._shards)
        workunit = w(1, shard)
        self.follow(WorkunitSent(workunit, host, 10))
        if self.history.is_quarantined(host):
            self.follow(refused(1, shard))
            return
        self.follow(applied(self.history.updates + 1, 1, shard))
        if gain is not None:
            self.follow(UploadScored(workunit, host, gain))

    def work(self, rounds: int, gains: dict[str, float] | None = None, usual: float = 1.0) -> None:
        """Every honest host, with gains that differ a little, and others with gains of their own."""
        for number in range(rounds):
            for place, host in enumerate(HONEST):
                self.bring(host, usual * (1 + 0.1 * DIFFERENCES[(place + number) % 5]))
            for host, gain in (gains or {}).items():
                self.bring(host, gain)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def test_what_becomes_of_a_workunit_counts_for_the_host_that_had_it(fleet: Fleet) -> None:
    fleet.follow(*(WorkunitSent(w(1, shard), "a", 10) for shard in range(5)))
    fleet.follow(applied(1, 1, 0), refused(1, 1), failed(1, 2), UpdateSuperseded(w(1, 3), 10))
    record = fleet.history.hosts["a"]
    assert (record.sent, record.applied, record.superseded, record.lost) == (5, 1, 1, 1)
    assert record.refused == {"not_finite": 1}
    assert record.turnaround_s == 5.0
    assert fleet.history.sender(w(1, 4)) == "a"
    assert fleet.history.sender(w(1, 0)) == ""


def test_an_upload_counts_for_the_host_that_the_grid_names_not_for_the_last_one_that_was_sent_it(fleet: Fleet) -> None:
    fleet.follow(WorkunitSent(w(), "a", 10), WorkunitSent(w(), "b", 10))
    fleet.follow(ResultRefused(w(), 0, "not_finite", "NaN", 10, host="b"))
    fleet.follow(UpdateApplied(**{**vars(applied(1)), "host": "a"}))
    assert fleet.history.hosts["a"].applied == 1
    assert fleet.history.hosts["a"].turnaround_s == 3.0
    assert fleet.history.hosts["b"].refused == {"not_finite": 1}


def test_what_was_out_when_a_session_ended_is_nobodys_loss(fleet: Fleet) -> None:
    fleet.follow(WorkunitSent(w(), "a", 10), RunStarted(resumed=True), failed())
    assert fleet.history.hosts["a"].lost == 0


def test_where_all_are_new_all_count_fully(fleet: Fleet) -> None:
    assert fleet.history.weight("never heard of") == 1.0
    for _ in range(10):
        fleet.work(1)
        assert {fleet.history.weight(host) for host in HONEST} == {1.0}


def test_a_host_that_joins_a_known_fleet_grows_from_little_weight_to_all(fleet: Fleet) -> None:
    fleet.work(6)
    weights = []
    for _ in range(7):
        fleet.follow(WorkunitSent(w(9), "late", 10))
        weights.append(round(fleet.history.weight("late"), 2))
        fleet.work(1, {"late": 1.0})
    assert weights == [0.3, 0.44, 0.58, 0.72, 0.86, 1.0, 1.0]
    assert fleet.history.state("late") is HostState.TRUSTED


def test_a_fleet_that_is_replaced_by_another_one_is_not_held_up(fleet: Fleet) -> None:
    fleet.work(6)
    for _ in range(4):
        for number in range(15):
            fleet.bring(f"new{number}")
    assert fleet.history.weight("new3") == 1.0


def test_a_host_whose_uploads_harm_is_quarantined_soon_and_the_others_keep_their_weight(fleet: Fleet) -> None:
    fleet.work(2, {"bad": -5.0})
    fleet.work(3, {"bad": -5.0})
    assert fleet.history.is_quarantined("bad")
    assert fleet.history.state("bad") is HostState.QUARANTINED
    assert fleet.history.weight("bad") == 0.0
    assert fleet.history.hosts["bad"].applied <= 3
    assert {fleet.history.weight(host) for host in HONEST} == {1.0}


def test_a_host_that_is_a_little_worse_loses_weight_gradually(fleet: Fleet) -> None:
    weights = []
    for _ in range(10):
        fleet.work(1, {"poor": 0.6})
        weights.append(fleet.history.weight("poor"))
    assert weights[0] == 1.0
    assert weights == sorted(weights, reverse=True)
    assert 0.1 < weights[-1] < 1.0


def test_one_strange_upload_condemns_nobody(fleet: Fleet) -> None:
    fleet.work(5)
    fleet.bring(HONEST[0], -1000.0)
    assert fleet.history.weight(HONEST[0]) > 0.9


def test_uploads_that_all_make_the_weights_worse_are_not_held_against_anybody(fleet: Fleet) -> None:
    fleet.work(5)
    fleet.work(10, usual=0.02)
    fleet.work(10, usual=-0.5)
    assert {fleet.history.weight(host) for host in HONEST} == {1.0}


def test_a_quarantine_ends_with_little_weight_and_the_next_one_is_longer(fleet: Fleet) -> None:
    fleet.work(6, {"bad": -5.0})
    first = fleet.history.hosts["bad"].quarantined_until
    while fleet.history.is_quarantined("bad"):
        fleet.work(1)
    assert fleet.history.weight("bad") == pytest.approx(0.1)
    assert fleet.history.state("bad") is HostState.DOUBTFUL
    again_at = fleet.history.updates
    fleet.bring("bad", -5.0)
    assert fleet.history.hosts["bad"].quarantined_until - again_at > first


def test_a_host_that_has_mended_is_believed_again(fleet: Fleet) -> None:
    fleet.work(6, {"mended": -5.0})
    while fleet.history.is_quarantined("mended"):
        fleet.work(1)
    for _ in range(15):
        fleet.work(1, {"mended": 1.0})
    assert fleet.history.weight("mended") == 1.0


def test_two_hosts_cannot_say_which_of_them_is_strange(fleet: Fleet) -> None:
    for _ in range(20):
        fleet.bring("a", 1.0)
        fleet.bring("b", -1.0)
    assert [fleet.history.weight(host) for host in "ab"] == [1.0, 1.0]


def test_an_upload_that_comes_after_a_restart_still_counts_for_its_host(fleet: Fleet) -> None:
    fleet.follow(WorkunitSent(w(), "a", 10), RunStarted(resumed=True))
    assert fleet.history.sender(w()) == "a"
    fleet.follow(applied(1))
    assert fleet.history.hosts["a"].applied == 1


def test_most_hosts_are_always_believed(fleet: Fleet) -> None:
    """Half of them conspire: whoever they are, the job does not stand still."""
    others = {f"bad{number}": -5.0 for number in range(8)}
    fleet.work(20, others)
    quarantined = [name for name in fleet.history.hosts if fleet.history.is_quarantined(name)]
    assert 0 < len(quarantined) < 8


@pytest.mark.parametrize("refusal", ["no_training_effect", "not_finite"])
def test_refusals_that_tell_of_the_host_count_as_the_worst_scores(fleet: Fleet, refusal: str) -> None:
    fleet.work(5)
    for shard in range(3):
        fleet.follow(WorkunitSent(w(7, shard), "idle", 10), replace(refused(7, shard), refusal=refusal))
        assert fleet.history.is_quarantined("idle") is (shard == 2)


def test_a_refusal_that_may_be_the_servers_fault_counts_against_nobody(fleet: Fleet) -> None:
    fleet.work(5)
    for shard in range(9):
        fleet.follow(WorkunitSent(w(7, shard), "a", 10), replace(refused(7, shard), refusal="wrong_base"))
    assert fleet.history.weight("a") == pytest.approx(0.3)
    assert fleet.history.score("a") is None


def test_where_gains_hardly_differ_a_little_less_is_no_doubt(fleet: Fleet) -> None:
    """Shards that are alike: the first host that is a little behind the others must not be taken for hostile."""
    for _ in range(10):
        for host in HONEST:
            fleet.bring(host, 1.0)
        fleet.bring("slow", 0.8)
    assert fleet.history.weight("slow") == 1.0


def test_the_training_time_of_a_known_host_follows_from_its_last_ones() -> None:
    history = HostHistory()
    for shard in range(20):
        train_s = [100.0, 200.0, None, 50.0][shard % 4]
        history.follow(Recorded(0, float(shard), replace(applied(shard + 1, 1, shard), host="a", train_s=train_s)))
        usual_s = history.usual_train_s("a", 20)
        assert (usual_s is None) == (shard < 4)
        assert usual_s is None or 100 < usual_s < 400
    assert history.usual_train_s("b", 20) is None


def test_a_host_that_claims_no_time_at_all_is_compared_with_nothing() -> None:
    history = HostHistory()
    for shard in range(10):
        history.follow(Recorded(0, 1.0, replace(applied(shard + 1, 1, shard), host="a", train_s=0.0)))
    assert history.usual_train_s("a", 20) is None


@pytest.mark.parametrize("train_s", [-1.0, 0.0, 5e-324])
def test_a_training_time_that_is_none_says_nothing_of_a_hosts_pace(train_s: float) -> None:
    """Such a time stands in a damaged journal only."""
    fleet = Fleet()
    fleet.follow(WorkunitSent(w(1, 0), "a", 10), replace(applied(1, 1, 0), train_s=train_s, host="a"))
    assert fleet.history.hosts["a"].pace is None
