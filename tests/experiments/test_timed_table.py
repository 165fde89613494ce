"""The table of ways to train on a fleet: times beside those of today's default."""

from benchmarks.experiments.timed_table import DEFAULT, Line, tables


def test_times_stand_beside_those_of_the_default() -> None:
    usual = Line("dense", "links bind", DEFAULT, 0.95, (None, 12.0), 4e5, 4e5, (4e5, 4e5, 4e5), (4e5, 4e5, 4e5))
    sooner = Line(
        "dense", "links bind", "sooner", 0.96, (8.0, 3.0), 8e3, 6e4, (6e3, 8e3, float("nan")), (6e4, 6e4, 6e4)
    )
    lines = list(tables([usual, sooner]))
    assert lines[0] == "## Dense, links bind"
    assert "| today's default | 95.0 | never | 12.0 s (1.0 ×) | 400 | 400 / 400 / 400 | 400 |" in lines[4]
    assert lines[5] == "| sooner | 96.0 | 8.0 s | 3.0 s (4.0 ×) | 8 | 6 / 8 / – | 60 | 60 / 60 / 60 |"
