"""The form of an experiment: variants of one job on one fleet, with settings as for --set and --with."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.experiments.problems import Problem
from vcdl.errors import JobError


@dataclass(frozen=True)
class Variant:
    """One line of an experiment's table."""

    name: str
    job: tuple[str, ...] = ()
    """Keys of the job file that the variant sets: `update.alpha=0.7`."""
    fleet: tuple[str, ...] = ()
    """Keys of the fleet that the variant sets: `clients=3`."""
    serial: bool = False
    """Whether the serial control trains it, instead of the fleet."""
    epochs: tuple[int, ...] = ()
    """Its lengths, if they differ from the experiment's."""
    problem: Problem | None = None
    """Data and model of its own; None: those of the job file."""
    measures_targets: bool = False
    """Whether its last weights are tried on the samples that targeted attacks are about."""
    control: str | None = None
    """The variant that it is compared with, if that is not the experiment's."""
    is_extra: bool = False
    """Whether it is left out unless it is asked for."""


@dataclass(frozen=True)
class Attacked(Variant):
    """A problem under an attack, with a defence."""

    attack: str = ""
    hosts: int = 0
    """Clients that attack; 0: all are honest, and alike."""
    speed: int = 1
    """Their speed, in that of the others."""
    defence: str = ""


@dataclass(frozen=True)
class Tuned(Variant):
    """A cell of a table: a variant that takes the best of some rates, found with a seed of its own."""

    row: str = ""
    column: str = ""
    rates: tuple[float, ...] = ()
    """Peaks to choose from; empty: the rate that the job has by itself."""
    rate: float | None = None
    """The peak that was chosen."""

    def at(self, rate: float) -> "Tuned":
        """The same at one rate, over the usual course, for both kinds of training."""
        course = f"training.learning_rate={{peak: {rate:g}, schedule: linear, end_factor: 0.02}}"
        return replace(self, name=f"{self.name} at {rate:g}", job=(*self.job, course), rate=rate)


@dataclass(frozen=True)
class Timed(Variant):
    """A way to train a problem on a fleet, judged by the time that it takes."""

    kind: str = ""
    """The problem in a word."""
    links: str = ""
    """The fleet in a word."""
    way: str = ""


@dataclass(frozen=True)
class Experiment:
    """Variants to compare."""

    title: str
    about: str
    """The question, or what the paper's figure shows: a paragraph of the report."""
    variants: tuple[Variant, ...]
    epochs: tuple[int, ...] = (8,)
    """Lengths of the runs: each variant runs to each, because a learning rate's schedule spans the whole job."""
    fleet: tuple[str, ...] = ()
    """Keys of the fleet for all variants."""
    shows_bytes: bool = False
    """Whether the table shows the transferred bytes."""
    control: str | None = None
    """The variant that the others are compared with."""

    def only(self, patterns: Sequence[str]) -> "Experiment":
        """The experiment with the variants whose names match all patterns, and those that these are compared with.

        Without patterns: all but the extra ones. Raises JobError when there are none.
        """
        chosen = [variant for variant in self.variants if all(_found(pattern, variant.name) for pattern in patterns)]
        chosen = chosen if patterns else [variant for variant in chosen if not variant.is_extra]
        if not chosen:
            usual = ", ".join(variant.name for variant in self.variants if not variant.is_extra)
            raise JobError(f"no variant matches {' and '.join(patterns)}: {usual}")
        kept = {self.control, *(name for variant in chosen for name in (variant.name, variant.control))}
        return replace(self, variants=tuple(variant for variant in self.variants if variant.name in kept))

    @property
    def is_tuned(self) -> bool:
        """Whether its variants are cells, whose rates are tried first."""
        return all(isinstance(variant, Tuned) for variant in self.variants)

    @property
    def is_timed(self) -> bool:
        """Whether its variants are judged by the time that they take."""
        return all(isinstance(variant, Timed) for variant in self.variants)

    @property
    def has_own_problems(self) -> bool:
        """Whether its variants bring data and models, so that it takes no job file."""
        return any(variant.problem is not None for variant in self.variants)


def _found(pattern: str, name: str) -> bool:
    """Raises JobError when the pattern is none."""
    try:
        return re.search(pattern, name) is not None
    except re.error as error:
        raise JobError(f"--only {pattern}: not a regular expression ({error})") from None
