"""The table of an experiment: mean and spread over the seeds, and the difference of each variant to the control."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.experiments.measured import RunFigures


@dataclass(frozen=True)
class Row:
    """A variant at one length, over its seeds; None: unknown."""

    variant: str
    epochs: int
    seeds: int
    mean: float | None
    """Accuracy on the test set (or the validation set of data without one), or the loss of a regression."""
    spread: float | None
    """Sample standard deviation; None for one seed."""
    difference: float | None
    """Mean minus the control's at the same length."""
    wall_s: float | None
    """Virtual time of the whole run, mean."""
    reached_s: float | None
    """Virtual time at the end of the first epoch whose mean over the seeds is as good as the control
    after its shortest run; None without one.
    """
    reached_share: float | None
    """`reached_s` over the control's time for that run."""
    bytes_down: float | None
    """Bytes down per subtask, mean."""
    bytes_up: float | None
    given_up: int
    """Runs that ended early because a subtask kept failing."""


@dataclass(frozen=True)
class Comparison:
    """The table of an experiment."""

    rows: tuple[Row, ...]
    control: str | None
    goal: float | None
    """The control's mean after its shortest run: the goal of `reached_s`."""
    is_regression: bool
    shows_bytes: bool


def compare(runs: Sequence[RunFigures], control: str | None, shows_bytes: bool = False) -> Comparison:
    """Compare runs; rows in the order of the variants, shortest runs first."""
    groups: dict[tuple[str, int], list[RunFigures]] = {}
    for run in runs:
        groups.setdefault((run.run.variant, run.run.epochs), []).append(run)
    controls = {epochs: group for (variant, epochs), group in groups.items() if variant == control}
    shortest = controls.get(min(controls, default=0), [])
    is_regression = any(run.is_regression for run in runs)
    goal, goal_s = _mean([run.final for run in shortest]), _mean([_wall_s(run) for run in shortest])
    # Order by the shortest runs, which all variants have: a longer one that only some have must not put these
    # first.
    variants = list(dict.fromkeys(variant for variant, _ in sorted(groups, key=lambda group: group[1])))
    rows = [
        _row(group, _mean([run.final for run in controls.get(key[1], [])]), goal, goal_s)
        for key, group in sorted(groups.items(), key=lambda item: (item[0][1], variants.index(item[0][0])))
    ]
    return Comparison(tuple(rows), control, goal, is_regression, shows_bytes)


def _row(group: Sequence[RunFigures], control: float | None, goal: float | None, goal_s: float | None) -> Row:
    finals = [run.final for run in group]
    mean, reached_s = _mean(finals), _reached_s(group, goal)
    known = [final for final in finals if final is not None and math.isfinite(final)]
    return Row(
        variant=group[0].run.variant,
        epochs=group[0].run.epochs,
        seeds=len(group),
        mean=mean,
        spread=statistics.stdev(known) if len(known) > 1 else None,
        difference=None if mean is None or control is None else mean - control,
        wall_s=_mean([_wall_s(run) for run in group]),
        reached_s=reached_s,
        reached_share=reached_s / goal_s if reached_s is not None and goal_s else None,
        bytes_down=_mean([run.bytes_down for run in group]),
        bytes_up=_mean([run.bytes_up for run in group]),
        given_up=sum(run.is_given_up for run in group),
    )


def _reached_s(group: Sequence[RunFigures], goal: float | None) -> float | None:
    """Time of the mean curve: one seed's epoch that swings high is not yet a result."""

    def is_as_good(value: float) -> bool:
        return goal is not None and (value <= goal if group[0].is_regression else value >= goal)

    epochs = zip(*(run.points for run in group), strict=False)  # a run that broke off is shorter
    reached = (points for points in epochs if is_as_good(statistics.fmean(point.value for point in points)))
    return _mean([point.wall_s for point in next(reached, ())])


def _wall_s(run: RunFigures) -> float | None:
    return run.points[-1].wall_s if run.points else None


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean; None unless all values are known and finite."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return statistics.fmean(known) if known and len(known) == len(values) else None
