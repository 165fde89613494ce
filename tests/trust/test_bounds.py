"""The bounds on strangers' uploads: each variable moves as far as honest training usually moves it, and no further."""

import numpy as np
import pytest

from tests.rules.updates import noise
from vcdl.rules.state import LENGTHS
from vcdl.rules.vc_asgd import VcAsgd
from vcdl.trust.bounds import Bounds, StepLimits, usual_of
from vcdl.wire.layout import Layout, Variable, Vector

KERNEL, BIAS = slice(0, 600), slice(600, 610)
MEAN, VARIANCE = slice(610, 630), slice(630, 650)
VELOCITY, COUNT = slice(650, 1250), slice(1250, 1251)
SIZE = 1251
LAYOUT = Layout(
    (
        Variable("dense/kernel", (20, 30), 0),
        Variable("dense/bias", (10,), 600),
        Variable("norm/moving_mean", (20,), 610),
        Variable("norm/moving_variance", (20,), 630),
        Variable("/0_dense_kernel_velocity", (20, 30), 650),
        Variable("/1_iteration", (), 1250),
        Variable("/2_nothing", (0,), 1251),
    )
)
CLIP = 1.5


def base() -> Vector:
    weights = noise(0, SIZE)
    weights[VARIANCE] = np.abs(weights[VARIANCE]) + 0.5
    weights[VELOCITY] = np.square(weights[VELOCITY]) * 1e-4
    weights[COUNT] = 100.0
    return weights


def honest(seed: int, rate: float = 1.0) -> Vector:
    """A client's upload: trained at `rate`, statistics and moments moved by some per cent."""
    drawn, started = noise(seed, SIZE), base()
    upload = started + np.float32(0.01 * rate) * drawn
    for part in (VARIANCE, VELOCITY):
        upload[part] = started[part] * (1 + 0.1 * np.tanh(drawn[part]))
    upload[COUNT] = 120.0
    return upload


BOUNDS = Bounds(LAYOUT, CLIP, tuple(Bounds(LAYOUT, CLIP, ()).row_of_step(honest(1), base(), 1.0).tolist()))


def table() -> Vector:
    """The table at the job's begin."""
    state = BOUNDS.state_of(VcAsgd(alpha=0.5))
    return state.table_of(state.tail_of(state.initial(base())))


def bounded(upload: Vector, rate: float = 1.0, lengths: Vector | None = None, blocks: int = SIZE) -> Vector:
    """The upload within the bounds, as the first one of a job unless a table is given."""
    row, within = BOUNDS.row_of_step(upload, base(), rate), upload.copy()
    limits = BOUNDS.limits(table() if lengths is None else lengths, 1, row)
    for begin in range(0, SIZE, blocks):
        end = min(SIZE, begin + blocks)
        BOUNDS.hold(within[begin:end], base()[begin:end], begin, limits)
    return within


def length(upload: Vector, part: slice) -> float:
    return float(np.linalg.norm(upload[part] - base()[part]))


def test_the_usual_length_is_the_lower_median_of_those_that_are_known() -> None:
    lengths = np.zeros((6, 4), np.float32)
    lengths[:3, 0], lengths[2:6, 1], lengths[1, 2] = (3.0, 1.0, 2.0), (4.0, 1.0, 2.0, 3.0), 7.0
    assert usual_of(lengths).tolist() == [2.0, 2.0, 7.0, 0.0]
    full = np.array([[4.0, 1.0], [1.0, 1.0], [3.0, 9.0], [2.0, 8.0]], np.float32)
    assert usual_of(full).tolist() == [2.0, 1.0]
    many = np.random.default_rng(1).permuted(np.arange(1.0, 41.0, dtype=np.float32).repeat(3).reshape(40, 3), axis=0)
    assert usual_of(many).tolist() == [20.0] * 3


@pytest.mark.parametrize("seed", range(2, 8))
def test_an_honest_upload_keeps_every_bit_of_its_weights(seed: int) -> None:
    upload = honest(seed)
    within = bounded(upload)
    assert within[: MEAN.stop].tobytes() == upload[: MEAN.stop].tobytes()
    assert within[COUNT] == upload[COUNT]


@pytest.mark.parametrize("part", [KERNEL, BIAS, MEAN, COUNT], ids=["kernel", "bias", "moving mean", "step count"])
@pytest.mark.parametrize("factor", [-100.0, 100.0])
def test_a_long_step_of_one_variable_is_shortened_and_the_others_stay(part: slice, factor: float) -> None:
    upload = honest(2)
    upload[part] = base()[part] + np.float32(factor) * (upload[part] - base()[part])
    within = bounded(upload)
    assert length(within, part) == pytest.approx(CLIP * length(honest(1), part), rel=1e-3)
    others = np.ones(SIZE, bool)
    others[part], others[VARIANCE], others[VELOCITY] = False, False, False
    assert within[others].tobytes() == upload[others].tobytes()


@pytest.mark.parametrize("number", [-1.0, 0.0, 9.0, 1e15])
@pytest.mark.parametrize("part", [VARIANCE, VELOCITY], ids=["variance", "second moment"])
def test_a_variance_stays_near_what_it_was_number_by_number(part: slice, number: float) -> None:
    upload = honest(2)
    upload[part] = number
    within, started = bounded(upload)[part], base()[part]
    assert within.min() >= 0.0
    row = BOUNDS.row_of_step(upload, base(), 1.0)
    assert BOUNDS.limits(table(), 1, row).furthest < 2, "early on, honest ones grow a hundredfold"
    assert np.all(np.abs(within - started) <= 0.2 * (started + 0.1 * started.mean()))


@pytest.mark.parametrize("part", [VARIANCE, VELOCITY], ids=["variance", "second moment"])
def test_a_variance_may_fall_as_far_as_it_may_rise_and_stays_in_between(part: slice) -> None:
    started, low, high, between = base()[part], honest(2), honest(2), honest(2)
    low[part], high[part] = -1.0, 1e15
    fall, rise = started - bounded(low)[part], bounded(high)[part] - started
    assert rise.min() > 0.0
    np.testing.assert_allclose(fall, np.minimum(rise, started), rtol=1e-3)
    for share in (0.9, -0.9):
        between[part] = np.maximum(started + np.float32(share) * rise, 0.0)
        assert bounded(between)[part].tobytes() == between[part].tobytes()


def test_a_step_is_measured_at_its_learning_rate() -> None:
    late = honest(2, rate=0.02)
    assert bounded(late, rate=0.02)[KERNEL].tobytes() == late[KERNEL].tobytes()
    as_long_as_early = bounded(honest(2), rate=0.02)
    assert length(as_long_as_early, KERNEL) == pytest.approx(0.02 * CLIP * length(honest(1), KERNEL), rel=1e-3)


def test_block_by_block_comes_to_the_same() -> None:
    upload = base() - 50 * (honest(2) - base())
    upload[VARIANCE], upload[VELOCITY] = base()[VARIANCE], base()[VELOCITY]
    sums = BOUNDS.sums()
    for begin in range(0, SIZE, 7):
        block = slice(begin, begin + 7)
        BOUNDS.measure(sums, upload[block], base()[block], begin)
    np.testing.assert_allclose(BOUNDS.step_norms(sums, 1.0), BOUNDS.row_of_step(upload, base(), 1.0), rtol=1e-5)
    np.testing.assert_array_equal(bounded(upload, blocks=7)[: MEAN.stop], bounded(upload)[: MEAN.stop])


def test_the_usual_length_follows_the_uploads_and_two_of_ten_hostile_ones_do_not_move_it() -> None:
    lengths = table()
    limits = StepLimits(np.ones(0, np.float32), np.ones(0, np.float32), 0.0, 0.0, 0.0)
    for number in range(1, LENGTHS + 1):
        factor = np.float32(1000.0 if number % 5 == 0 else 3.0)
        step = (honest(number) - base()) * factor
        limits = BOUNDS.limits(lengths, number, BOUNDS.row_of_step(base() + step, base(), 1.0))
    assert limits.usual == pytest.approx(3 * length(honest(1), slice(0, MEAN.start)), rel=0.1)


def test_what_is_no_measure_for_others_is_bounded_by_them_and_moves_nothing_that_is_usual() -> None:
    lengths = table()
    for number in range(1, LENGTHS + 1):
        row = BOUNDS.row_of_step(honest(number), base(), 1.0)
        usual = BOUNDS.limits(lengths, number, row).usual
    for number in range(1, 2 * LENGTHS):
        row = BOUNDS.row_of_step(base() + 100 * (honest(number) - base()), base(), 1.0)
        limits = BOUNDS.limits(lengths, number, row, is_measure=False)
        assert limits.usual == pytest.approx(usual, rel=0.05)
        assert limits.factors[0] < 0.05


def test_directions_are_those_of_the_shortened_step() -> None:
    """A decoy: one variable goes far along the honest direction, which the bounds take back, all others against it."""
    way = honest(1) - base()
    decoy = -1.4 * way
    decoy[BIAS] = 1000 * way[BIAS]
    sums, row = BOUNDS.sums(), BOUNDS.row_of_step(base() + decoy, base(), 1.0)
    for begin in range(0, SIZE, 7):
        block = slice(begin, begin + 7)
        step = (base() + decoy)[block]
        BOUNDS.measure(sums, step, base()[block], begin, (base() + way)[block], 2 * way[block])
    factors = BOUNDS.limits(table(), 1, row).factors
    trained = np.concatenate([(decoy * factors[0])[KERNEL], (decoy * factors[1])[BIAS]])
    honest_way = np.concatenate([way[KERNEL], way[BIAS]])
    expected = trained @ honest_way / np.linalg.norm(trained) / np.linalg.norm(honest_way)
    cosine, reference = BOUNDS.cosines(sums, factors)
    assert cosine == pytest.approx(expected, rel=1e-4)
    assert reference == pytest.approx(expected, rel=1e-4)
    raw, _ = BOUNDS.cosines(sums, np.ones_like(factors))
    assert raw is not None
    assert expected < -0.5 < 0 < raw
    assert BOUNDS.cosines(BOUNDS.sums(), factors) == (None, None), "nobody brought anything"


def test_what_never_moves_may_not_be_moved() -> None:
    still = honest(1)
    still[BIAS] = base()[BIAS]
    row = Bounds(LAYOUT, CLIP, ()).row_of_step(still, base(), 1.0)
    strict = Bounds(LAYOUT, CLIP, tuple(row.tolist()))
    state = strict.state_of(VcAsgd(alpha=0.5))
    lengths, upload = state.table_of(state.tail_of(state.initial(base()))), honest(2)
    for number in (1, 2):
        moved = strict.limits(lengths, number, strict.row_of_step(upload, base(), 1.0))
    assert moved.limit[1] > 0, "the first clients that move it define how far"
    only_one = strict.limits(lengths, 3, strict.row_of_step(base() + 100 * (upload - base()), base(), 1.0))
    assert only_one.factors[1] < 0.1
