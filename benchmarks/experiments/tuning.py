"""Rates found by trial, with as many trials for each variant and seeds that no result is taken from."""

import math
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.experiments.experiment import Experiment, Tuned, Variant
from benchmarks.experiments.measured import RunFigures

TUNING_SEEDS = (101,)


def trials(experiment: Experiment) -> Experiment:
    """The experiment that tries all rates."""
    tried = [cell.at(rate) for cell in experiment.variants if isinstance(cell, Tuned) for rate in cell.rates]
    return replace(experiment, variants=tuple(tried))


def tuned(experiment: Experiment, runs: Sequence[RunFigures]) -> Experiment:
    """The experiment at the rates that were best in the trials."""
    scores: dict[str, list[float]] = {}
    for run in runs:
        scores.setdefault(run.run.variant, []).append(badness(run))
    return replace(experiment, variants=tuple(_best(cell, scores) for cell in experiment.variants))


def badness(run: RunFigures) -> float:
    """The loss of a regression, or 1 − accuracy; ∞ for a run that broke off."""
    if run.final is None or not math.isfinite(run.final):
        return math.inf
    return run.final if run.is_regression else 1 - run.final


def _best(cell: Variant, scores: dict[str, list[float]]) -> Variant:
    if not isinstance(cell, Tuned) or not cell.rates:
        return cell
    return min(map(cell.at, cell.rates), key=lambda tried: sum(scores[tried.name]))
