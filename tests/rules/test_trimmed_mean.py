"""The trimmed mean over a buffer."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rules.updates import begun, noise, steps, update, vector
from vcdl.rules.damping import Constant
from vcdl.rules.trimmed_mean import TrimmedMean


def test_a_case_by_hand() -> None:
    rule = TrimmedMean(server_learning_rate=0.5, buffer=4, trim=1, staleness=Constant())
    server = begun(rule, vector(10.0, 0.0))
    assert steps(rule, server, vector(1.0, 8.0), vector(-90.0, 2.0), vector(3.0, 4.0)) == [0.125] * 3
    assert server[0].tolist() == [10.0, 0.0]
    steps(rule, server, vector(70.0, -9.0), first=4)
    assert server[0].tolist() == [11.0, 1.5]  # ½·(1 + 3)/2 and ½·(2 + 4)/2
    assert not server[1:].any(), "nothing waits any more"


def test_without_the_base_it_refuses_to_work() -> None:
    with pytest.raises(ValueError, match="needs the weights that the client started from"):
        TrimmedMean(buffer=1, trim=0).apply(vector(1.0), update(vector(2.0)))


@pytest.mark.parametrize("hostile", [1, 2])
def test_as_many_hostile_updates_as_it_trims_leave_it_among_the_honest(hostile: int) -> None:
    rule = TrimmedMean(server_learning_rate=1.0, buffer=7, trim=2, staleness=Constant())
    honest = [noise(number, 500) for number in range(7 - hostile)]
    server = begun(rule, np.zeros(500, np.float32))
    steps(rule, server, *honest, *[np.full(500, 1e6, np.float32)] * hostile)
    assert np.all(server[0] <= np.max(honest, axis=0) + 1e-5)
    assert np.all(server[0] >= np.min(honest, axis=0) - 1e-5)


@given(
    buffer=st.integers(1, 6), data=st.data(), numbers=st.lists(st.floats(-100, 100, width=32), min_size=6, max_size=6)
)
def test_it_is_the_trimmed_mean(buffer: int, data: st.DataObject, numbers: list[float]) -> None:
    trim = data.draw(st.integers(0, (buffer - 1) // 2))
    rule = TrimmedMean(server_learning_rate=1.0, buffer=buffer, trim=trim, staleness=Constant())
    server = begun(rule, vector(0.0))
    steps(rule, server, *[vector(number) for number in numbers[:buffer]])
    kept = sorted(numbers[:buffer])[trim : buffer - trim]
    assert np.atleast_2d(server)[0, 0] == pytest.approx(sum(kept) / len(kept), rel=1e-5, abs=1e-4)
