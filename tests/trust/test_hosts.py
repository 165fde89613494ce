"""What a journal's events add up to for each host."""

from collections.abc import Iterator
from itertools import count

import pytest
from msgspec import structs

from tests.job_events import applied, failed, refused, w
from vcdl.journal.events import (
    Event,
    Recorded,
    ResultRefused,
    RolledBack,
    RunStarted,
    UpdateSuperseded,
    UploadVerified,
    WorkunitSent,
)
from vcdl.trust.host_record import HostState
from vcdl.trust.hosts import HostHistory

HONEST = [f"h{number}" for number in range(8)]


class Fleet:
    """Hosts that bring upload after upload."""

    def __init__(self) -> None:
        self.history = HostHistory()
        self._shards: Iterator[int] = count()
        self._time_s = 0.0

    def follow(self, *events: Event) -> None:
        for event in events:
            self._time_s += 1.0
            self.history.follow(Recorded(0, self._time_s, event))

    def bring(self, *hosts: str) -> list[float]:
        """An upload of each host, refused while it is out; returns how far each counted."""
        weights = []
        for host in hosts:
            shard = next(self._shards)
            self.follow(WorkunitSent(w(f"e1 s{shard}"), host, 10))
            weights.append(self.history.weight(host))
            if self.history.is_out(host):
                self.follow(structs.replace(refused(f"e1 s{shard}"), refusal="host_quarantined"))
            else:
                self.follow(structs.replace(applied(f"e1 s{shard}", self.history.updates + 1), trust=weights[-1]))
        return weights

    def refuse(self, host: str, refusal: str) -> None:
        shard = next(self._shards)
        self.follow(
            WorkunitSent(w(f"e7 s{shard}"), host, 10), structs.replace(refused(f"e7 s{shard}"), refusal=refusal)
        )

    def work(self, rounds: int, *others: str) -> None:
        """Every honest host, and others."""
        for _ in range(rounds):
            self.bring(*HONEST, *others)

    def verify(self, host: str, *, agrees: bool = True) -> None:
        """The server has trained an upload of a host again."""
        self.follow(UploadVerified(w(f"e1 s{next(self._shards)}"), host, self.history.updates, 0.0, agrees, 1.0))


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def test_what_becomes_of_a_workunit_counts_for_the_host_that_had_it(fleet: Fleet) -> None:
    fleet.follow(*(WorkunitSent(w(f"e1 s{shard}"), "a", 10) for shard in range(5)))
    fleet.follow(applied("e1 s0", 1), refused("e1 s1"), failed("e1 s2"), UpdateSuperseded(w("e1 s3"), 10))
    record = fleet.history.hosts["a"]
    assert (record.sent, record.applied, record.superseded, record.lost) == (5, 1, 1, 1)
    assert record.refused == {"not_finite": 1}
    assert record.turnaround_s == 5.0
    assert fleet.history.sender(w("e1 s4")) == "a"
    assert fleet.history.sender(w("e1 s0")) == ""


def test_an_upload_counts_for_the_host_that_the_grid_names_not_for_the_last_one_that_was_sent_it(fleet: Fleet) -> None:
    fleet.follow(WorkunitSent(w(), "a", 10), WorkunitSent(w(), "b", 10))
    fleet.follow(ResultRefused(w(), 0, "not_finite", "NaN", 10, host="b"))
    fleet.follow(structs.replace(applied(version=1), host="a"))
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


def beside_two(number: int) -> tuple[str, ...]:
    """Four uploads of a fast host, while two of the others bring one each."""
    return (*["fast"] * 4, HONEST[2 * number % 8], HONEST[(2 * number + 1) % 8])


def test_a_fast_host_has_its_share_on_its_word_and_all_when_the_server_trains_its_uploads_again(fleet: Fleet) -> None:
    fleet.work(2)
    unverified = sum(sum(fleet.bring(*beside_two(number))[:4]) for number in range(14))
    assert unverified == pytest.approx(20 + 36 * 0.05, abs=1.0), "a fifth of the last hundred"
    counted = 0.0
    for number in range(40):
        if number % 3 == 0:
            fleet.verify("fast")
        counted += sum(fleet.bring(*beside_two(number))[:4])
    assert counted >= 0.97 * 160


def test_no_host_has_more_than_its_share_of_the_measures_whatever_it_may_weigh(fleet: Fleet) -> None:
    fleet.work(2)
    weights = []
    for number in range(40):
        fleet.verify("fast")
        weights += fleet.bring(*beside_two(number))[:4]
    assert sum(weight == 1.0 for weight in weights[-66:]) <= 21, "of the last hundred uploads"
    assert min(weights[-66:]) > 0.99


def test_hosts_that_come_later_have_one_small_part_together_until_one_was_trained_again(fleet: Fleet) -> None:
    fleet.work(2)
    brought = 0
    for number in range(120):
        host = f"name{number // 3}"
        fleet.bring(HONEST[number % 8])
        assert brought <= max(3, 1 + 0.1 * fleet.history.updates)
        fleet.follow(WorkunitSent(w(f"e9 s{number}"), host, 10))
        if fleet.history.has_room(host):
            fleet.bring(host)
            brought += 1
    assert 10 <= brought <= 16
    fleet.verify("name9")
    assert fleet.history.has_room("name9")
    late = [fleet.bring("name99") for _ in range(4) if fleet.history.has_room("name99")]
    assert len(late) < 4
    assert not fleet.history.has_room("name99")


def test_a_first_host_may_bring_its_part_and_half_as_much_until_one_was_trained_again(fleet: Fleet) -> None:
    fleet.follow(*(WorkunitSent(w(f"e3 s{place}"), host, 10) for place, host in enumerate([*HONEST, "fast"])))
    brought = 0
    for number in range(80):
        if fleet.history.has_room("fast"):
            fleet.bring("fast")
            brought += 1
        fleet.bring(HONEST[number % 8])
        assert fleet.history.has_room(HONEST[number % 8])
        assert brought <= max(5, 2 + 1.5 * fleet.history.updates / 9)
    assert brought > 0.9 * 1.5 * fleet.history.updates / 9


def test_a_host_is_convicted_once_the_server_has_agreed_with_another(fleet: Fleet) -> None:
    fleet.work(2, "liar")
    fleet.verify("liar", agrees=False)
    assert fleet.history.to_convict == [], "the server may be wrong about this job"
    assert not fleet.history.is_out("liar")
    fleet.refuse("liar", "against_others")
    assert not fleet.history.must_be_verified("liar"), "it would keep the server from ever agreeing with another"
    assert fleet.history.must_be_verified("h0")
    fleet.verify("h0")
    assert not fleet.history.must_be_verified("h0")
    (convicted,) = fleet.history.to_convict
    assert (convicted.host, convicted.versions) == ("liar", (9, 18))
    fleet.follow(convicted)
    assert not convicted.for_good, "one wrong bit in its memory is enough"
    assert fleet.history.to_convict == []
    assert fleet.history.state("liar") is HostState.QUARANTINED
    fleet.work(30)
    assert not fleet.history.is_out("liar")
    assert fleet.history.must_be_verified("liar")
    fleet.bring("liar")
    fleet.verify("liar", agrees=False)
    (convicted,) = fleet.history.to_convict
    assert convicted.for_good
    assert len(convicted.again) == 1, "what was made again once is not made again twice"
    fleet.follow(convicted)
    assert fleet.history.state("liar") is HostState.CONVICTED
    fleet.work(100)
    assert fleet.history.is_out("liar"), "for good"


def test_of_a_host_whose_uploads_cannot_be_compared_none_counts_once_two_others_are_proven(fleet: Fleet) -> None:
    """Liars that named another backend were never found in a model with dropout, and counted in full."""
    liars = [f"liar{number}" for number in range(9)]
    fleet.bring(*liars)
    fleet.work(1)
    for liar in liars:
        fleet.follow(UploadVerified(w("e1 s0"), liar, 1, 0.0, agrees=True, train_s=0.0, is_comparable=False))
    assert fleet.history.verified == 0
    assert not any(map(fleet.history.must_be_verified, liars))
    fleet.verify("h0")
    assert all(map(fleet.history.has_room, liars)), "h0 may be the only one like the server"
    fleet.verify("h1")
    assert not any(map(fleet.history.has_room, liars)), "however many names there are"
    taken_back = fleet.history.to_convict
    assert {event.host for event in taken_back} == {*liars}
    assert not any(event.for_good for event in taken_back)
    fleet.follow(*taken_back)
    assert fleet.history.to_convict == []


def test_a_host_may_bring_a_part_for_each_whole_subtask(fleet: Fleet) -> None:
    assert not fleet.history.may_bring_part("a")
    fleet.bring("a", "a")
    assert fleet.history.may_bring_part("a")
    fleet.follow(structs.replace(applied("e1 s90", 9), host="a", is_part=True))
    assert fleet.history.may_bring_part("a")
    fleet.follow(structs.replace(applied("e1 s91", 10), host="a", is_part=True))
    assert not fleet.history.may_bring_part("a")


def test_of_a_convicted_host_only_what_came_after_its_last_good_upload_is_taken_back(fleet: Fleet) -> None:
    fleet.bring("sleeper", "h0")
    fleet.verify("h0")
    fleet.verify("sleeper")
    fleet.bring("h0", "sleeper", "sleeper")
    assert fleet.history.is_vouched("sleeper", 1)
    assert not fleet.history.is_vouched("sleeper", 4)
    fleet.verify("sleeper", agrees=False)
    (convicted,) = fleet.history.to_convict
    assert (convicted.versions, len(convicted.again)) == ((4, 5), 2)


def test_what_was_dropped_with_a_liars_uploads_is_not_taken_back_or_made_again_once_more(fleet: Fleet) -> None:
    fleet.bring("h0", "sleeper", "other", "other", "other")
    fleet.verify("h0")
    fleet.follow(RolledBack(6, 0, (2, 4), 5, 0.0, 0.0, "sleeper", ("honest",)))
    fleet.verify("other", agrees=False)
    assert fleet.history.to_convict[0].versions == (3, 5)
    fleet.follow(RolledBack(7, 0, (3, 5), 6, 0.1, 0.9))
    assert fleet.history.to_convict[0].versions == (3, 5), "a collapse: nothing is made again"


def test_an_upload_that_was_applied_just_before_one_agreed_is_believed(fleet: Fleet) -> None:
    fleet.bring("h0", "sleeper")
    fleet.verify("h0")
    fleet.verify("sleeper")
    fleet.bring("sleeper")
    fleet.verify("sleeper", agrees=False)
    assert fleet.history.to_convict[0].versions == (3,)


def test_what_is_drawn_is_told_from_what_had_to_be_trained_again(fleet: Fleet) -> None:
    fleet.bring("a", "a")
    fleet.verify("a")
    assert (fleet.history.verified, fleet.history.verified_drawn) == (1, 0)
    fleet.verify("a")
    fleet.refuse("a", "against_others")
    assert fleet.history.must_be_verified("a")
    fleet.verify("a")
    assert (fleet.history.verified, fleet.history.verified_drawn) == (3, 1)


def test_an_upload_that_comes_after_a_restart_still_counts_for_its_host(fleet: Fleet) -> None:
    fleet.follow(WorkunitSent(w(), "a", 10), RunStarted(resumed=True))
    assert fleet.history.sender(w()) == "a"
    fleet.follow(applied(version=1))
    assert fleet.history.hosts["a"].applied == 1


def test_refusals_put_no_more_than_half_of_the_hosts_out(fleet: Fleet) -> None:
    fleet.work(2)
    for host in HONEST:
        fleet.refuse(host, "unreadable")
    assert sum(fleet.history.is_out(host) for host in HONEST) == 4


def test_a_host_that_brings_garbage_is_out_at_once_also_before_the_first_update(fleet: Fleet) -> None:
    fleet.follow(*(WorkunitSent(w(f"e3 s{place}"), host, 10) for place, host in enumerate(HONEST)))
    fleet.refuse("garbage", "unreadable")
    assert fleet.history.is_out("garbage")
    assert fleet.history.state("garbage") is HostState.QUARANTINED


def test_new_names_of_one_that_brings_garbage_keep_nobody_else_in(fleet: Fleet) -> None:
    fleet.work(1)
    for number in range(20):
        fleet.refuse(f"name{number}", "unreadable")
        assert fleet.history.is_out(f"name{number}")


def test_a_quarantine_ends_and_the_next_one_is_longer(fleet: Fleet) -> None:
    fleet.work(2)
    fleet.refuse("bad", "not_finite")
    first = fleet.history.hosts["bad"].quarantined_until - fleet.history.updates
    assert first == 200
    fleet.work(first // len(HONEST) + 1)
    assert not fleet.history.is_out("bad")
    fleet.refuse("bad", "not_finite")
    assert fleet.history.hosts["bad"].quarantined_until - fleet.history.updates == 2 * first


def test_one_strange_step_puts_nobody_out_and_two_in_a_row_do(fleet: Fleet) -> None:
    fleet.work(2)
    for _ in range(4):
        fleet.refuse("h0", "step_too_long")
        assert not fleet.history.is_out("h0")
        assert fleet.history.state("h0") is HostState.DOUBTFUL
        fleet.bring(*["h0"] * 10)
    fleet.refuse("h1", "against_others")
    fleet.refuse("h1", "step_too_long")
    assert fleet.history.is_out("h1")


def test_an_upload_that_was_trained_again_excuses_a_strange_one(fleet: Fleet) -> None:
    fleet.work(2)
    fleet.refuse("h0", "step_too_long")
    fleet.verify("h0")
    fleet.refuse("h0", "step_too_long")
    assert not fleet.history.is_out("h0")


@pytest.mark.parametrize("refusal", ["wrong_base", "no_file"])
def test_a_refusal_that_may_be_the_servers_fault_counts_against_nobody(fleet: Fleet, refusal: str) -> None:
    fleet.work(2)
    for _ in range(9):
        fleet.refuse("h0", refusal)
    assert fleet.history.state("h0") is not HostState.DOUBTFUL
    assert not fleet.history.is_out("h0")


def test_the_training_time_of_a_known_host_follows_from_its_last_ones() -> None:
    history = HostHistory()
    for shard in range(20):
        train_s = [100.0, 200.0, None, 50.0][shard % 4]
        history.follow(
            Recorded(0, float(shard), structs.replace(applied(f"e1 s{shard}", shard + 1), host="a", train_s=train_s))
        )
        usual_s = history.usual_train_s("a", 20)
        assert (usual_s is None) == (shard < 4)
        assert usual_s is None or 100 < usual_s < 400
    assert history.usual_train_s("b", 20) is None
    for shard in range(20, 60):
        history.follow(Recorded(0, 1.0, structs.replace(applied(f"e1 s{shard}", shard + 1), host="a", train_s=10.0)))
    usual_s = history.usual_train_s("a", 20)
    assert usual_s == pytest.approx(20 * 10.0 / applied(version=1).samples, rel=0.01), "what was long ago is forgotten"


def test_a_hosts_turnaround_goes_after_its_last_ones(fleet: Fleet) -> None:
    fleet.bring("a")
    fleet.follow(WorkunitSent(w("e8 s1"), "a", 10), *(WorkunitSent(w("e8 s2"), "b", 10) for _ in range(10)))
    fleet.follow(applied("e8 s1", 2))
    assert fleet.history.hosts["a"].turnaround_s == pytest.approx(1.0 + 0.2 * (11.0 - 1.0))


@pytest.mark.parametrize("train_s", [0.0, 5e-324])  # the second is zero once it is divided by the samples
def test_a_host_that_claims_no_time_at_all_is_compared_with_nothing(train_s: float) -> None:
    history = HostHistory()
    for shard in range(10):
        history.follow(Recorded(0, 1.0, structs.replace(applied(f"e1 s{shard}", shard + 1), host="a", train_s=train_s)))
    assert history.usual_train_s("a", 20) is None
