"""The paper's experiments and ours. Each is a small file of variants to compare; `conduct` runs them all."""

import importlib

from benchmarks.experiments.experiment import Experiment
from vcdl.errors import JobError

NAMES = (
    *("figures-2-3", "figures-4-5", "figure-6"),
    *("accuracy", "losses", "hostile", "non-iid", "codecs", "optimizers", "muon", "defaults", "dlion"),
)
"""The paper's experiments, then ours; each is a module with an EXPERIMENT."""


def experiment(name: str) -> Experiment:
    """The experiment of a name. Raises JobError."""
    if name not in NAMES:
        raise JobError(f"there is no experiment {name!r}; choose one of {', '.join(NAMES)}")
    found: Experiment = importlib.import_module(f"benchmarks.experiments.{name.replace('-', '_')}").EXPERIMENT
    return found
