"""Two uploads of one subtask: rounding is forgiven, everything else is not."""

from pathlib import Path

import numpy as np
import pytest

from tests.codecs.encodings import LARGE, SMALL, WITH_MOMENTS, changes, encoding
from vcdl.trust.agreement import TOLERANCE, Disagreement, disagreement
from vcdl.wire.layout import Layout, Vector
from vcdl.wire.weights import write_weights
from vcdl.wire.workunit import Named

PLAIN = Named("float32")


def apart(folder: Path, layout: Layout, base: Vector, one: Vector, other: Vector, codec: Named = PLAIN) -> Disagreement:
    up = encoding(codec, compress=False, of=layout)
    write_weights(folder / "base.h5", base, "{}")
    for name, vector in (("one", one), ("other", other)):
        up.write_upload(folder / f"{name}.h5", vector.copy(), base, "{}")
    found = disagreement(folder / "one.h5", folder / "other.h5", folder / "base.h5", up)
    mirrored = disagreement(folder / "other.h5", folder / "one.h5", folder / "base.h5", up)
    assert repr(found) == repr(mirrored), "BOINC compares in any order"
    return found


@pytest.fixture(params=[SMALL, LARGE, WITH_MOMENTS], ids=["small", "large", "with moments"])
def layout(request: pytest.FixtureRequest) -> Layout:
    found: Layout = request.param
    return found


def rest_of(layout: Layout) -> Vector:
    """1 where statistics or moments are, 0 elsewhere."""
    mask = np.zeros(layout.size, np.float32)
    for begin, end in layout.statistics:
        mask[begin:end] = 1
    return mask


@pytest.mark.slow
def test_the_same_bits_are_the_same_work(tmp_path: Path, layout: Layout) -> None:
    base, step = changes(layout.size, 1), changes(layout.size, 2)
    assert apart(tmp_path, layout, base, base + step, base + step) == Disagreement(0, 0)
    assert apart(tmp_path, layout, base, base, base) == Disagreement(0, 0)


def test_the_distance_is_a_share_of_the_longer_step_by_kind(tmp_path: Path, layout: Layout) -> None:
    rng, rest = np.random.default_rng(3), rest_of(layout)
    base = np.zeros(layout.size, np.float32)
    step = rng.standard_normal(layout.size).astype(np.float32)
    other = step * (1 + np.float32(0.5) * rest - np.float32(0.25) * (1 - rest))
    found = apart(tmp_path, layout, base, step, other)
    assert found.trained == pytest.approx(0.25, rel=1e-4)
    assert found.rest == pytest.approx(0.5 / 1.5, rel=1e-4)


@pytest.mark.parametrize("share", [0.5 * TOLERANCE, 2 * TOLERANCE])
def test_rounding_ends_at_the_tolerance(tmp_path: Path, layout: Layout, share: float) -> None:
    rng = np.random.default_rng(4)
    base, step, noise = (rng.standard_normal(layout.size).astype(np.float32) for _ in range(3))
    noise *= np.float32(share) * (1 - rest_of(layout))
    found = apart(tmp_path, layout, base, base + step, base + step + noise)
    assert found.is_rounding == (share < TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("attack", [lambda s: -s, lambda s: 10 * s, lambda s: 0 * s, lambda s: 9 + 0 * s])
def test_no_attack_passes_for_rounding(tmp_path: Path, layout: Layout, attack: "np.ufunc") -> None:
    base, step, rest = changes(layout.size, 1), changes(layout.size, 2), rest_of(layout)
    hostile = np.asarray(attack(step), np.float32)
    for kind in (rest, 1 - rest):  # in the statistics and moments alone, and in the trained weights alone
        other = step * (1 - kind) + hostile * kind
        assert not apart(tmp_path, layout, base, base + step, base + other).is_rounding


def test_a_counter_among_the_moments_hides_none_of_them(tmp_path: Path) -> None:
    base = np.zeros(WITH_MOMENTS.size, np.float32)
    step = 1e-4 * changes(WITH_MOMENTS.size, 2)
    counter, velocity = WITH_MOMENTS.variables[-2:]
    step[counter.offset] = 1000
    other = step.copy()
    other[velocity.offset : velocity.offset + velocity.size] *= -1
    assert apart(tmp_path, WITH_MOMENTS, base, step, other).rest == pytest.approx(2)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_is_no_number_is_never_rounding(tmp_path: Path, number: float) -> None:
    base, step = changes(SMALL.size, 1), changes(SMALL.size, 2)
    for place in (3, SMALL.statistics[0][0], SMALL.size - 1):
        other = base + step
        other[place] = number
        with np.errstate(invalid="ignore"):
            assert not apart(tmp_path, SMALL, base, base + step, other).is_rounding


@pytest.mark.parametrize("codec", [Named("float16"), Named("bfloat16"), Named("int8")], ids=lambda codec: codec.name)
def test_the_same_work_stays_the_same_in_a_lossy_codec(tmp_path: Path, codec: Named) -> None:
    base, step = changes(SMALL.size, 1), changes(SMALL.size, 2)
    noise = np.float32(1e-4) * changes(SMALL.size, 5)
    assert apart(tmp_path, SMALL, base, base + step, base + step + noise, codec).is_rounding
    assert not apart(tmp_path, SMALL, base, base + step, base - step, codec).is_rounding
