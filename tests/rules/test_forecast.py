"""Forecast averaging: clients start from where the weights will be."""

import numpy as np
import pytest

from tests.rules.updates import begun, noise, update, vector
from vcdl.rules.forecast import Forecast


def test_a_case_by_hand() -> None:
    rule = Forecast(staleness_damping=1 / 3, compensation=0.5, averaging_window=1.0, horizon=2.0)
    server = np.array([[1.5, 4.0], [0.5, 0.0]], np.float32)  # W = (1, 4)
    assert rule.apply(server, update(vector(3.0, 2.0), vector(1.0, 2.0), staleness=3)) == 0.5  # 1 / (1 + 3/3)
    # Δ = ½·(3 + ½·0 − 1) = 1 and ½·(2 + ½·2 − 4) = −½; D ← ¾·D + ¼·2·3·Δ; W + Δ = (2, 3½)
    assert server[1].tolist() == [1.875, -0.75]
    assert server[0].tolist() == [3.875, 2.75]


def test_without_staleness_it_is_serial_training() -> None:
    rule, server = (
        Forecast(staleness_damping=0.25, compensation=0.3, averaging_window=2.0, horizon=1.0),
        begun(Forecast(staleness_damping=0.25, compensation=0.3, averaging_window=2.0, horizon=1.0), noise(0, 100)),
    )
    for number in range(1, 5):
        client = noise(number, 100)
        assert rule.apply(server, update(client, server[0].copy(), number=number)) == 1.0
        np.testing.assert_allclose(server[0], client, atol=1e-6)
        assert not server[1].any()


@pytest.mark.parametrize("delay", [1, 4, 9, 19, 39])
@pytest.mark.parametrize("contraction", [0.0, 0.5, 0.9, 0.99])
def test_it_is_steady_and_faster_than_averaging_whatever_the_staleness(delay: int, contraction: float) -> None:
    """A client takes what is left of the way to the optimum, 0, times `contraction`; `delay` others come in between."""
    forecast, average = (
        Forecast(staleness_damping=0.15, compensation=0.2, averaging_window=2.0, horizon=1.0),
        Forecast(staleness_damping=0.15, compensation=0.0, averaging_window=2.0, horizon=0.0),
    )
    left = {}
    for rule in (forecast, average):
        server = begun(rule, vector(1.0))
        served = [1.0] * (delay + 1)
        for number in range(1, 60 * (delay + 1)):
            base = served[-delay - 1]
            rule.apply(server, update(vector(contraction * base), vector(base), staleness=delay, number=number))
            served.append(float(server[0, 0]))
        left[rule] = max(abs(weight) for weight in served[-2 * delay - 2 :])
    if contraction < 0.99:
        assert left[forecast] < 1e-2
    else:
        assert np.log(left[forecast]) < 1.5 * np.log(left[average])
