"""Numbers that no gradient moves are averaged by every rule, and stay possible."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcdl.rules.base import Rule, Update
from vcdl.rules.damping import Constant
from vcdl.rules.fedbuff import FedBuff
from vcdl.rules.forecast import Forecast
from vcdl.rules.statistics import StatisticsMean, on_statistics
from vcdl.rules.trimmed_mean import TrimmedMean
from vcdl.wire.layout import Layout, Variable

RULES: list[Rule] = [
    TrimmedMean(server_learning_rate=1.0, buffer=1, trim=0, staleness=Constant()),
    FedBuff(server_learning_rate=1.0, buffer=3, staleness=Constant()),
    Forecast(staleness_damping=0.25, compensation=0.3, averaging_window=2.0, horizon=1.0),
    TrimmedMean(server_learning_rate=1.0, buffer=3, trim=1, staleness=Constant()),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
@given(values=st.lists(st.floats(0, 1e6, width=32), min_size=1, max_size=20), staleness=st.integers(0, 20))
def test_a_variance_never_becomes_negative(rule: Rule, values: list[float], staleness: int) -> None:
    mean = on_statistics(rule)
    assert mean.state == rule.state
    server = rule.state.initial(np.ones(2, np.float32)).reshape(-1, 2)
    server = server if rule.state.vectors else server[0]
    for number, value in enumerate(values, 1):
        client = np.full(2, value, np.float32)
        mean.apply(
            server,
            Update(
                weights=client, epoch=1, staleness=staleness, samples=1, fraction=1.0, number=number,
                base=np.ones(2, np.float32),
            ),
        )  # fmt: skip
    w = server[0] if rule.state.vectors else server
    assert (w >= 0).all()
    assert (w <= max(1.0, *values) * (1 + 1e-6)).all()


def test_the_mean_by_hand() -> None:
    server = np.array([[1.0, 2.0], [5.0, 6.0]], np.float32)
    rule = StatisticsMean(Forecast(staleness_damping=0.25, compensation=0.3, averaging_window=2.0, horizon=1.0).state)
    update = Update(np.array([3.0, 0.0], np.float32), 1, staleness=4, samples=1, fraction=0.5)
    assert rule.apply(server, update) == 0.25
    assert server.tolist() == [[1.5, 1.5], [5.0, 6.0]]


@given(st.data())
def test_parts_of_a_layout_are_what_a_mask_says(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=1, max_size=8))
    variables: list[Variable] = []
    for size, is_trained in sizes:
        offset = variables[-1].offset + variables[-1].size if variables else 0
        variables.append(Variable("a/kernel" if is_trained else "a/moving_mean", (size,), offset))
    layout = Layout(tuple(variables)).with_moments([("velocity", (2,))])
    mask = np.concatenate([np.full(size, is_trained) for size, is_trained in [*sizes, (2, False)]])
    begin = data.draw(st.integers(0, layout.size - 1))
    end = data.draw(st.integers(begin + 1, layout.size))
    seen = np.full(end - begin, 7)
    for part, is_trained in layout.parts(begin, end):
        assert part.stop > part.start
        assert (seen[part] == 7).all()
        seen[part] = is_trained
    assert (seen == mask[begin:end]).all()
