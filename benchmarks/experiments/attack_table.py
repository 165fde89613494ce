"""The table of the experiment `hostile`: each attack with its share, speed and defence, against honest clients."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.experiments.experiment import Attacked, Variant
from benchmarks.experiments.measured import RunFigures, Uploads
from benchmarks.experiments.targets import Targets

_Value = Callable[[RunFigures], float | None]


@dataclass(frozen=True)
class Points:
    """Differences to the honest runs of the same problem and seed, in points."""

    mean: float
    worst: float


@dataclass(frozen=True)
class Row:
    """An attack over all problems and seeds; None: unknown."""

    attack: str
    hosts: int
    """Clients that attack, or that are faster than the others."""
    speed: int
    defence: str
    problems: dict[str, float]
    """Mean difference of the accuracy, in points, by problem."""
    accuracies: dict[str, float]
    """Mean accuracy by problem."""
    points: Points | None
    recall: Points | None
    """Share of the samples of the class that the attack `targeted` is about that are called so."""
    backdoor: Points | None
    """Samples that are called what the backdoor's pattern says."""
    refused_honest: dict[str, float]
    """Share of the honest clients' uploads, by problem."""
    refused_hostile: float | None
    honest_out: int
    """Honest clients that were out of the job at any time, over all runs."""
    liars: int
    """Clients that attack, over all runs."""
    found_after: tuple[int, ...]
    """Uploads of each attacking client that was found, until it was out of the job."""
    runs: int
    given_up: int
    """Runs that ended early because a subtask kept failing."""


def rows_of(runs: Sequence[RunFigures], variants: Iterable[Variant]) -> tuple[Row, ...]:
    """The rows of the variants that have runs, in the order of the variants."""
    by_name = {run.run.variant: [one for one in runs if one.run.variant == run.run.variant] for run in runs}
    made = [variant for variant in variants if isinstance(variant, Attacked) and variant.name in by_name]
    kinds = dict.fromkeys((variant.attack, variant.hosts, variant.speed, variant.defence) for variant in made)
    return tuple(
        _row(
            [variant for variant in made if (variant.attack, variant.hosts, variant.speed, variant.defence) == kind],
            by_name,
        )
        for kind in kinds
    )


def _row(variants: Sequence[Attacked], runs: dict[str, list[RunFigures]]) -> Row:
    of_problem = {variant.problem.name: runs[variant.name] for variant in variants if variant.problem is not None}
    pairs = {
        variant.problem.name: _pairs(runs[variant.name], runs.get(variant.control or "", []))
        for variant in variants
        if variant.problem is not None
    }
    every, compared = (
        [run for some in of_problem.values() for run in some],
        [p for some in pairs.values() for p in some],
    )
    first, finals = variants[0], {name: _differences(some, _final) for name, some in pairs.items()}
    return Row(
        attack=first.attack,
        hosts=first.hosts,
        speed=first.speed,
        defence=first.defence,
        problems={name: statistics.fmean(some) for name, some in finals.items() if some},
        accuracies={name: statistics.fmean(map(_final, some)) for name, some in of_problem.items()},
        points=_points([one for some in finals.values() for one in some], min),
        recall=_points(_differences(compared, _target(lambda targets: targets.recall)), min),
        backdoor=_points(_differences(compared, _target(lambda targets: targets.backdoor)), max),
        refused_honest={name: _refused([run.honest for run in some]) or 0.0 for name, some in of_problem.items()},
        refused_hostile=_refused([run.hostile for run in every]),
        honest_out=sum(run.honest_out for run in every),
        liars=sum(run.liars for run in every),
        found_after=tuple(uploads for run in every for uploads in run.found_after),
        runs=len(every),
        given_up=sum(run.is_given_up for run in every),
    )


def _pairs(runs: Iterable[RunFigures], controls: Iterable[RunFigures]) -> list[tuple[RunFigures, RunFigures]]:
    """Each run with the control of the same seed and length."""
    known = {(run.run.seed, run.run.epochs): run for run in controls}
    keyed = [(run, (run.run.seed, run.run.epochs)) for run in runs]
    return [(run, known[key]) for run, key in keyed if key in known]


def _differences(pairs: Iterable[tuple[RunFigures, RunFigures]], value: _Value) -> list[float]:
    known = [(value(run), value(control)) for run, control in pairs]
    return [100 * (one - other) for one, other in known if one is not None and other is not None]


def _points(differences: Sequence[float], worst: Callable[[Sequence[float]], float]) -> Points | None:
    return Points(statistics.fmean(differences), worst(differences)) if differences else None


def _final(run: RunFigures) -> float:
    """An accuracy; 0 for a run whose weights could not be measured any more."""
    return run.final if run.final is not None and math.isfinite(run.final) else 0.0


def _target(figure: Callable[[Targets], float]) -> _Value:
    return lambda run: None if run.targets is None else figure(run.targets)


def _refused(uploads: Sequence[Uploads]) -> float | None:
    refused, applied = sum(one.refused for one in uploads), sum(one.applied for one in uploads)
    return refused / (refused + applied) if refused + applied else None
