"""The table of the experiment `hostile`: each attack on each problem under each defence, against honest clients."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vcdl.experiments.experiment import Attacked, Variant
from vcdl.experiments.hostile import CONTROL_DEFENCE
from vcdl.experiments.measured import RunFigures, Uploads


@dataclass(frozen=True)
class Cell:
    """A problem under an attack with a defence, over its seeds; None: unknown."""

    problem: str
    attack: str
    """Empty: all clients are honest."""
    defence: str
    seeds: int
    mean: float | None
    """Accuracy on the test set."""
    points: float | None
    """Mean difference, seed by seed, to honest clients without a defence, in points."""
    worst_points: float | None
    """The same for the worst seed."""
    refused_honest: float | None
    """Share of the honest clients' uploads; None: there were none."""
    refused_hostile: float | None
    backdoor: float | None
    bytes_down: float | None
    """Bytes per applied subtask, mean."""
    bytes_up: float | None
    given_up: int
    """Runs that ended early because a subtask kept failing."""


def cells_of(runs: Sequence[RunFigures], variants: Iterable[Variant]) -> tuple[Cell, ...]:
    """The cells of the variants that have runs, in the order of the variants."""
    made: dict[str, list[RunFigures]] = {}
    for run in runs:
        made.setdefault(run.run.variant, []).append(run)
    cells = [variant for variant in variants if isinstance(variant, Attacked) and variant.name in made]
    honest = {
        (_problem(cell), run.run.seed, run.run.epochs): run.final
        for cell in cells
        if (cell.attack, cell.defence) == ("", CONTROL_DEFENCE)
        for run in made[cell.name]
    }
    return tuple(_cell(cell, made[cell.name], honest) for cell in cells)


def _cell(variant: Attacked, runs: Sequence[RunFigures], honest: dict[tuple[str, int, int], float | None]) -> Cell:
    problem = _problem(variant)
    controls = [honest.get((problem, run.run.seed, run.run.epochs)) for run in runs]
    points = [
        100 * (_number(run.final) - control) for run, control in zip(runs, controls, strict=True) if control is not None
    ]
    return Cell(
        problem=problem,
        attack=variant.attack,
        defence=variant.defence,
        seeds=len(runs),
        mean=_mean([run.final for run in runs]),
        points=_mean(points),
        worst_points=min(points, default=None),
        refused_honest=_refused([run.honest for run in runs]),
        refused_hostile=_refused([run.hostile for run in runs]),
        backdoor=_mean([run.backdoor for run in runs]),
        bytes_down=_mean([run.bytes_down for run in runs]),
        bytes_up=_mean([run.bytes_up for run in runs]),
        given_up=sum(run.is_given_up for run in runs),
    )


def _problem(variant: Attacked) -> str:
    return variant.problem.name if variant.problem is not None else ""


def _number(final: float | None) -> float:
    """An accuracy; 0 for a run whose weights could not be measured any more."""
    return final if final is not None and math.isfinite(final) else 0.0


def _refused(uploads: Sequence[Uploads]) -> float | None:
    refused, applied = sum(one.refused for one in uploads), sum(one.applied for one in uploads)
    return refused / (refused + applied) if refused + applied else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
