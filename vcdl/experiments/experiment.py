"""What an experiment is: variants of one job on one fleet, each with its settings as they would stand behind --set and --with."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Variant:
    """One line of an experiment's table."""

    name: str
    job: tuple[str, ...] = ()
    """Keys of the job file that it sets: `update.alpha=0.7`."""
    fleet: tuple[str, ...] = ()
    """Keys of the fleet that it sets: `clients=3`."""
    serial: bool = False
    """Trained by the serial control instead of the fleet."""
    epochs: tuple[int, ...] = ()
    """Its lengths, where they are not those of the experiment."""


@dataclass(frozen=True)
class Experiment:
    """Variants beside each other."""

    title: str
    about: str
    """What is asked, and of the paper's figures what they show: a paragraph of the report."""
    variants: tuple[Variant, ...]
    """None: the experiment is `vcdl bench store`."""
    epochs: tuple[int, ...] = (8,)
    """Lengths of the runs: each variant is run to each, because a learning rate's schedule goes over the whole job."""
    fleet: tuple[str, ...] = ()
    """Of all variants."""
    shows_bytes: bool = False
    """Whether what travels is part of the question."""
    control: str | None = None
    """The variant that the others are compared with."""
