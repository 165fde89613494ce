"""Outcomes of subtasks on simulated clients: the draws follow the settings, and nothing else."""

import pytest

from vcdl.simulate.client_fleet import ClientFleet
from vcdl.simulate.clients import Clients, SubtaskOutcome
from vcdl.wire.workunit import WorkunitName

FLEET = ClientFleet(clients=4, slots=1, subtask_s=60.0, jitter=0.3)


def name(shard: int, epoch: int = 1, attempt: int = 0) -> WorkunitName:
    return WorkunitName("j", epoch, shard, attempt, 0)


def outcomes(fleet: ClientFleet, count: int = 2000, client: int = 0) -> list[SubtaskOutcome]:
    clients = Clients(fleet)
    return [clients.outcome(client, name(shard), 0.0) for shard in range(count)]


def test_draws_do_not_depend_on_the_order_of_questions() -> None:
    fleet = ClientFleet(clients=4, lost=0.3, preempted_every_s=100.0)
    questions = [(client, name(shard), 50.0 * shard) for client in range(4) for shard in range(20)]
    forwards, backwards = Clients(fleet), Clients(fleet)
    expected = [forwards.outcome(*question) for question in questions]
    assert [backwards.outcome(*question) for question in reversed(questions)] == expected[::-1]


def test_another_seed_client_epoch_shard_or_attempt_is_another_draw() -> None:
    clients = Clients(FLEET)
    same = clients.outcome(0, name(0), 0.0)
    others = [
        Clients(FLEET.model_copy(update={"seed": 2})).outcome(0, name(0), 0.0),
        *(clients.outcome(1, name(0), 0.0), clients.outcome(0, name(1), 0.0)),
        *(clients.outcome(0, name(0, epoch=2), 0.0), clients.outcome(0, name(0, attempt=1), 0.0)),
    ]
    assert clients.outcome(0, name(0), 0.0) == same
    assert same not in others


def test_durations_lie_evenly_around_their_mean() -> None:
    durations = [outcome.train_s for outcome in outcomes(FLEET)]
    assert sum(durations) / len(durations) == pytest.approx(60, rel=0.02)
    assert min(durations) == pytest.approx(42, abs=0.2)
    assert max(durations) == pytest.approx(78, abs=0.2)


def test_speeds_differ_by_the_spread_and_are_one_on_average() -> None:
    speeds = Clients(ClientFleet(clients=10, speed_ratio=4.0)).speeds
    assert max(speeds) / min(speeds) == pytest.approx(4)
    assert sum(speeds) / 10 == pytest.approx(1)
    slow, fast = speeds.index(min(speeds)), speeds.index(max(speeds))
    clients = Clients(ClientFleet(clients=10, speed_ratio=4.0, jitter=0.0))
    assert clients.outcome(slow, name(0), 0.0).train_s == pytest.approx(4 * clients.outcome(fast, name(0), 0.0).train_s)


def test_the_given_part_of_subtasks_is_lost_and_heard_of_at_the_timeout() -> None:
    lost = [outcome for outcome in outcomes(ClientFleet(lost=0.3, speed_ratio=1.0, timeout_s=500.0)) if outcome.lost]
    assert len(lost) / 2000 == pytest.approx(0.3, abs=0.03)
    assert {outcome.heard_of_s for outcome in lost} == {500.0}
    assert all(outcome.slot_free_s <= 78 for outcome in lost)
    assert lost[0].lost == "client-00 lost it"


def test_a_client_that_is_too_slow_is_given_up_at_the_timeout() -> None:
    outcome = Clients(ClientFleet(jitter=0.0, timeout_s=50.0)).outcome(0, name(0), 0.0)
    assert (outcome.slot_free_s, outcome.heard_of_s) == (50.0, 50.0)
    assert outcome.lost == "no result of client-00 after 50 s"


def preempted(checkpoint_s: float | None) -> tuple[Clients, float, float]:
    """Clients of which client 0 goes away while it trains the subtask that it begins at 0, and for how long it
    is away.
    """
    for seed in range(100):
        fleet = ClientFleet(
            seed=seed, jitter=0.0, preempted_every_s=200.0, away_s=50.0, checkpoint_every_s=checkpoint_s, timeout_s=1e6,
            loss_report_s=3.0,
        )  # fmt: skip
        clients = Clients(fleet)
        away_s = next(tenth / 10 for tenth in range(10**6) if clients.here_from(0, tenth / 10) > tenth / 10)
        back_s = clients.here_from(0, away_s)
        if 10 < away_s < 50 and clients.here_from(0, back_s + 60) == back_s + 60:
            return Clients(fleet), away_s, back_s
    raise AssertionError


def test_a_preempted_subtask_goes_on_where_it_was_when_its_client_is_back() -> None:
    clients, away_s, back_s = preempted(checkpoint_s=0.0)
    assert clients.outcome(0, name(0), 0.0).heard_of_s == pytest.approx(back_s + 60 - away_s, abs=0.2)


def test_what_was_trained_after_the_last_checkpoint_is_trained_again() -> None:
    clients, away_s, back_s = preempted(checkpoint_s=10.0)
    assert clients.outcome(0, name(0), 0.0).heard_of_s == pytest.approx(back_s + 60 - away_s // 10 * 10)


def test_without_checkpoints_a_preempted_subtask_is_lost() -> None:
    clients, away_s, back_s = preempted(checkpoint_s=None)
    outcome = clients.outcome(0, name(0), 0.0)
    assert outcome.lost == "client-00 went away"
    assert outcome.heard_of_s == pytest.approx(away_s + 3, abs=0.2)
    assert outcome.slot_free_s == back_s


def test_a_subtask_that_is_never_done_between_two_preemptions_is_given_up() -> None:
    fleet = ClientFleet(preempted_every_s=0.001, away_s=0.001, checkpoint_every_s=1000.0, timeout_s=2.0)
    assert Clients(fleet).outcome(0, name(0), 0.0).heard_of_s == 2.0


def test_a_subtask_ends_by_time_with_the_part_that_its_client_trains() -> None:
    fleet = ClientFleet(clients=10, slots=1, speed_ratio=8.0, jitter=0.0)
    clients = Clients(fleet)
    fractions = [clients.outcome(client, name(0), 0.0, target_s=30.0).fraction for client in range(10)]
    assert fractions == pytest.approx([min(1.0, speed / 2) for speed in clients.speeds])
    assert {clients.outcome(client, name(0), 0.0, target_s=30.0).train_s for client in range(10)} <= {30.0, *(
        60.0 / speed for speed in clients.speeds
    )}  # fmt: skip


def test_files_take_their_time_on_a_client_s_link() -> None:
    fleet = ClientFleet(clients=3, slots=1, jitter=0.0, link_mb_per_s=2.0, link_ratio=100.0)
    clients = Clients(fleet)
    assert sorted(clients.upload_s(client, 2_000_000) for client in range(3)) == pytest.approx([0.1, 1.0, 10.0])
    outcome = clients.outcome(0, name(0), 0.0, bytes_down=2_000_000)
    assert outcome.trained_s == pytest.approx(60 + clients.upload_s(0, 2_000_000))
    assert Clients(FLEET).upload_s(0, 10**9) == 0
