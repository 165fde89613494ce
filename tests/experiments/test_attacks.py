"""The uploads of hostile clients: each has the property that its attack claims."""

import numpy as np
import pytest

from benchmarks.experiments.attacks import HostileClients
from benchmarks.experiments.hostile_fleet import Attack, Hostile, HostileFleet
from vcdl.wire.layout import Layout, Variable, Vector
from vcdl.wire.workunit import WorkunitName

WEIGHTS = 400
LAYOUT = Layout(
    (
        Variable("dense/kernel", (WEIGHTS,), 0),
        Variable("norm/moving_mean", (3,), WEIGHTS),
        Variable("norm/moving_variance", (3,), WEIGHTS + 3),
        Variable("/0_iteration", (), WEIGHTS + 6),
        Variable("/1_kernel_velocity", (5,), WEIGHTS + 7),
    )
)
TRAINED, MEAN = slice(0, WEIGHTS), slice(WEIGHTS, WEIGHTS + 3)
VARIANCE, COUNT, MOMENTS = slice(WEIGHTS + 3, WEIGHTS + 6), WEIGHTS + 6, slice(WEIGHTS + 7, WEIGHTS + 12)
BEHIND = slice(WEIGHTS, None)
RNG = np.random.default_rng(0)
BASE = RNG.standard_normal(LAYOUT.size).astype(np.float32)
CLIENT = BASE + np.float32(0.1) * RNG.standard_normal(LAYOUT.size).astype(np.float32)
WAY = RNG.standard_normal(LAYOUT.size).astype(np.float32)
HONEST = [BASE + WAY + np.float32(0.3) * RNG.standard_normal(LAYOUT.size).astype(np.float32) for _ in range(12)]
STEPS = np.array([honest - BASE for honest in HONEST])[:, TRAINED]


def clients(*, seen: int = len(HONEST)) -> HostileClients:
    known = HostileClients(HostileFleet(), LAYOUT)
    for honest in HONEST[:seen]:
        known.saw(BASE, honest)
    return known


def name(epoch: int = 1, shard: int = 0) -> WorkunitName:
    return WorkunitName("job", epoch, shard, 0, 0)


def upload(attack: Attack, scale: float = 2.0, *, seen: int = len(HONEST)) -> Vector:
    return clients(seen=seen).upload(Hostile(client=0, attack=attack, scale=scale), name(), BASE, CLIENT)


def step(upload: Vector) -> Vector:
    return (upload - BASE)[TRAINED]


def cosine(one: Vector, other: Vector) -> float:
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


@pytest.mark.parametrize(
    ("attack", "factor"),
    [("sign_flip", -2.0), ("scaled", 2.0), ("label_flip", 2.0), ("targeted", 2.0), ("backdoor", 2.0)],
)
def test_a_multiple_of_its_own_step(attack: Attack, factor: float) -> None:
    assert step(upload(attack)) == pytest.approx(factor * step(CLIENT), abs=1e-5)


def test_a_little_is_enough_stays_within_the_spread_of_the_last_ten_honest_steps() -> None:
    last = STEPS[-10:]
    assert step(upload("alie", 1.5)) == pytest.approx(last.mean(axis=0) - 1.5 * last.std(axis=0), abs=1e-5)
    assert cosine(step(upload("alie", 1.5)), WAY[TRAINED]) > 0.5
    assert step(upload("alie", 0.0)) == pytest.approx(last.mean(axis=0), abs=1e-5)


def test_drift_goes_the_same_way_the_whole_job_and_is_as_long_as_an_honest_step() -> None:
    known, hostile = clients(), Hostile(client=0, attack="drift", scale=1.0)
    early = step(known.upload(hostile, name(), BASE, CLIENT))
    for _ in range(30):
        known.saw(BASE, BASE - WAY)
    late = step(known.upload(hostile, name(epoch=9), BASE, CLIENT))
    assert cosine(early, STEPS[:10].mean(axis=0)) == pytest.approx(-1, abs=1e-4)
    assert cosine(early, late) == pytest.approx(1, abs=1e-4)
    assert np.linalg.norm(early) == pytest.approx(np.median(np.linalg.norm(STEPS[-10:], axis=1)), rel=1e-4)


def test_colluding_clients_take_exactly_the_same_step_in_an_epoch() -> None:
    known = clients(seen=10)
    first = known.upload(Hostile(client=0, attack="colluding"), name(1, 0), BASE, CLIENT)
    for honest in HONEST[10:]:
        known.saw(BASE, honest)
    second = known.upload(Hostile(client=1, attack="colluding"), name(1, 1), BASE, HONEST[3])
    next_epoch = known.upload(Hostile(client=1, attack="colluding"), name(2, 1), BASE, HONEST[3])
    assert first[TRAINED].tolist() == second[TRAINED].tolist() != next_epoch[TRAINED].tolist()
    assert cosine(step(first), STEPS[:10].mean(axis=0)) == pytest.approx(-1, abs=1e-4)


@pytest.mark.parametrize(
    "attack", ["sign_flip", "constant", "alie", "inner_product", "drift", "colluding", "noise", "decoy"]
)
def test_a_false_step_comes_with_honest_statistics_and_moments(attack: Attack) -> None:
    assert upload(attack)[BEHIND].tolist() == CLIENT[BEHIND].tolist()


def test_a_decoy_looks_honest_by_its_largest_variable_alone() -> None:
    layout = Layout((Variable("large", (300,), 0), Variable("bias", (20,), 300), Variable("kernel", (80,), 320)))
    known = HostileClients(HostileFleet(), layout)
    for honest in HONEST:
        known.saw(BASE[:400], honest[:400])
    decoy = known.upload(Hostile(client=0, attack="decoy", scale=1.45), name(), BASE[:400], CLIENT[:400]) - BASE[:400]
    last = STEPS[-10:]
    for place in (slice(300, 320), slice(320, 400)):
        assert cosine(decoy[place], last[:, place].mean(axis=0)) == pytest.approx(-1, abs=1e-4)
        usual = np.median(np.linalg.norm(last[:, place], axis=1))
        assert np.linalg.norm(decoy[place]) == pytest.approx(1.45 * usual, rel=1e-4)
    own = (CLIENT - BASE)[:400]
    assert cosine(decoy[:300], own[:300]) == pytest.approx(1, abs=1e-4)
    assert cosine(decoy, own) > 0.5
    assert np.linalg.norm(decoy) == pytest.approx(2.0 * np.median(np.linalg.norm(last, axis=1)), rel=1e-4)


def test_statistics_are_honest_but_for_the_variances() -> None:
    false = upload("statistics", 1.0)
    assert false[VARIANCE].tolist() == [-1.0] * 3
    false[VARIANCE] = CLIENT[VARIANCE]
    assert false.tolist() == CLIENT.tolist()


@pytest.mark.parametrize("scale", [1e15, 0.0])
def test_moments_are_all_the_same_and_the_rest_is_honest(scale: float) -> None:
    false = upload("moments", scale)
    assert false[MOMENTS].tolist() == [np.float32(scale)] * 5
    false[MOMENTS] = CLIENT[MOMENTS]
    assert false.tolist() == CLIENT.tolist()


def test_replay_sends_its_first_weights_again() -> None:
    known, hostile = clients(), Hostile(client=0, attack="replay")
    assert known.upload(hostile, name(1), BASE, CLIENT).tolist() == CLIENT.tolist()
    assert known.upload(hostile, name(2), CLIENT, HONEST[0]).tolist() == CLIENT.tolist()
    another = known.upload(Hostile(client=1, attack="replay"), name(2), BASE, HONEST[1])
    assert another.tolist() == HONEST[1].tolist()
