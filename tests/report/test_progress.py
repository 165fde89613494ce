"""Numbers in words."""

import pytest

from tests.recorded_run import BEGAN_S, FIRST_SESSION, applied, recorded, workunit
from vcdl.errors import printable
from vcdl.journal.events import RunStarted
from vcdl.journal.monitor import Monitor
from vcdl.report.measures import Report
from vcdl.report.progress import RunGoal, measured_words, range_left, seconds_left
from vcdl.report.wording import duration, group_digits, plural, size


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (125, "2 min 05 s"), (3599.9, "1 h 00 min"),
        (12_000, "3 h 20 min"),
    ],
)  # fmt: skip
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("size_bytes", "words"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (19 * 2**20, "19.0 MiB"), (3 * 2**40, "3072.0 GiB")],
)
def test_sizes(size_bytes: int, words: str) -> None:
    assert size(size_bytes) == words


HIGH, LOW = Monitor(), Monitor("loss", "min")


def test_numbers_and_nouns() -> None:
    assert group_digits(4_972_746) == "4 972 746"
    assert (plural(1, "epoch"), plural(0, "epoch")) == ("1 epoch", "0 epochs")
    assert printable("a\tb\x00c\n") == "a b c"
    assert (measured_words(0.87654, HIGH), measured_words(1234.5, LOW), measured_words(None, HIGH)) == (
        "0.8765",
        "1234",
        "–",
    )


def test_the_time_left_ends_with_the_time_limit() -> None:
    report = Report.of(recorded(FIRST_SESSION[:-1]))
    assert seconds_left(RunGoal("demo", 2, 2), report, BEGAN_S + 30) == pytest.approx(40)
    assert seconds_left(RunGoal("demo", 2, 2, wall_time_s=45), report, BEGAN_S + 30) == pytest.approx(15)
    assert seconds_left(RunGoal("demo", 2, 2, wall_time_s=10), report, BEGAN_S + 30) == 0
    assert seconds_left(RunGoal("demo", 2, 2), Report(), BEGAN_S) is None


def test_the_range_of_the_time_left_holds_the_time_left_also_where_nothing_comes_for_long() -> None:
    came = [(10 * n, applied(workunit(1, n), version=n + 1)) for n in range(8)]
    report = Report.of(recorded([(0, RunStarted(resumed=False)), *came]))
    for after_s in (70, 7000):
        low, high = range_left(RunGoal("demo", 20, 2), report, BEGAN_S + after_s) or (0.0, 0.0)
        left_s = seconds_left(RunGoal("demo", 20, 2), report, BEGAN_S + after_s)
        assert left_s is not None
        assert 0 < low <= left_s <= high
