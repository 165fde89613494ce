"""The form of an experiment: variants of one job on one fleet, with settings as for --set and --with."""

from dataclasses import dataclass


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


@dataclass(frozen=True)
class Experiment:
    """Variants to compare."""

    title: str
    about: str
    """The question, or what the paper's figure shows: a paragraph of the report."""
    variants: tuple[Variant, ...]
    """Empty: the experiment is `vcdl bench store`."""
    epochs: tuple[int, ...] = (8,)
    """Lengths of the runs: each variant runs to each, because a learning rate's schedule spans the whole job."""
    fleet: tuple[str, ...] = ()
    """Keys of the fleet for all variants."""
    shows_bytes: bool = False
    """Whether the table shows the transferred bytes."""
    control: str | None = None
    """The variant that the others are compared with."""
