"""The table of an experiment: mean and spread over the seeds, and each variant beside the control."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from vcdl.experiments.measured import Measured


@dataclass(frozen=True)
class Row:
    """A variant to a length, over its seeds; `None`: cannot be said."""

    variant: str
    epochs: int
    seeds: int
    mean: float | None
    """Accuracy on the test set (on the validation set of data without one), or the loss of a regression."""
    spread: float | None
    """Sample standard deviation; None for one seed."""
    difference: float | None
    """Mean − the control's at the same length."""
    wall_s: float | None
    """Virtual time of the whole run, mean."""
    reached_s: float | None
    """Virtual time at the end of the first epoch that is, as a mean over the seeds, as good as the control after its shortest run; None: no epoch is."""
    reached_share: float | None
    """Of the control's time for that run."""
    bytes_down: float | None
    """A subtask, mean."""
    bytes_up: float | None
    given_up: int
    """Runs that broke off because a subtask kept failing."""


@dataclass(frozen=True)
class Comparison:
    """All of an experiment's runs."""

    rows: tuple[Row, ...]
    control: str | None
    goal: float | None
    """The control's mean after its shortest run, which `reached_s` is about."""
    is_regression: bool
    shows_bytes: bool


def compare(runs: Sequence[Measured], control: str | None, shows_bytes: bool = False) -> Comparison:
    """Rows in the order in which variants appear, shortest runs first."""
    groups: dict[tuple[str, int], list[Measured]] = {}
    for run in runs:
        groups.setdefault((run.run.variant, run.run.epochs), []).append(run)
    controls = {epochs: group for (variant, epochs), group in groups.items() if variant == control}
    shortest = controls.get(min(controls, default=0), [])
    is_regression = any(run.is_regression for run in runs)
    goal, goal_s = _mean([run.final for run in shortest]), _mean([_wall_s(run) for run in shortest])
    # Of the shortest runs, which all variants have: a longer one that only some have must not put these first.
    variants = list(dict.fromkeys(variant for variant, _ in sorted(groups, key=lambda group: group[1])))
    rows = [
        _row(group, _mean([run.final for run in controls.get(key[1], [])]), goal, goal_s)
        for key, group in sorted(groups.items(), key=lambda item: (item[0][1], variants.index(item[0][0])))
    ]
    return Comparison(tuple(rows), control, goal, is_regression, shows_bytes)


def _row(group: Sequence[Measured], control: float | None, goal: float | None, goal_s: float | None) -> Row:
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


def _reached_s(group: Sequence[Measured], goal: float | None) -> float | None:
    """Of the mean curve: an epoch of one seed that swings high is not yet a result."""

    def is_as_good(value: float) -> bool:
        return goal is not None and (value <= goal if group[0].is_regression else value >= goal)

    epochs = zip(*(run.points for run in group), strict=False)  # one that broke off is shorter
    reached = (points for points in epochs if is_as_good(statistics.fmean(point.value for point in points)))
    return _mean([point.wall_s for point in next(reached, ())])


def _wall_s(run: Measured) -> float | None:
    return run.points[-1].wall_s if run.points else None


def _mean(values: Sequence[float | None]) -> float | None:
    """None unless all are known and finite."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return statistics.fmean(known) if known and len(known) == len(values) else None
