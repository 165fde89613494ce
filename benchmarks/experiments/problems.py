"""Eight small problems of different kinds, each learnt in seconds: what is promised of all jobs is tried on these."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from benchmarks.experiments.problem_data import FORMULAS, arrays
from vcdl.errors import folder_errors
from vcdl.files.atomic import atomic_write

_SHARDS = 15
PASSES = 4
"""Over a shard in one subtask: a shard has only some eight batches."""


@dataclass(frozen=True)
class Problem:
    """A data set and a model that learns it."""

    name: str
    about: str
    model: str
    """A function of benchmarks.experiments.problem_models, or a built-in model."""
    normalise: str = "scale"
    concentration: float | None = None
    """The parameter of the Dirichlet distribution by which its classes are spread over the shards; None: evenly."""
    rate: float | None = 0.005
    """The peak; None: what a job gets that names none."""
    has_statistics: bool = False
    """Whether its model has batch normalisation."""

    def write(self, folder: Path) -> Path:
        """Write its job file and its data into a folder, unless they are there; returns the job file.

        Raises RunFolderError.
        """
        job_file, data_file = folder / f"{self.name}.yaml", folder / f"{self.name}.npz"
        text = yaml.safe_dump(self._job(), sort_keys=False)
        with folder_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            if self.is_made and not data_file.exists():
                with atomic_write(data_file) as temporary, temporary.open("wb") as file:
                    np.savez_compressed(file, allow_pickle=False, **arrays(self.name))
            if not job_file.exists() or job_file.read_text(encoding="utf-8") != text:
                with atomic_write(job_file) as temporary:
                    temporary.write_text(text, encoding="utf-8")
        return job_file

    @property
    def is_made(self) -> bool:
        """Whether its data are a file that `write` makes."""
        return self.name in FORMULAS

    @property
    def _source(self) -> dict[str, object]:
        return {"npz": f"{self.name}.npz"} if self.is_made else {"dataset": self.name}

    def _job(self) -> dict[str, object]:
        source = self._source
        split = {} if self.concentration is None else {"split": "dirichlet", "concentration": self.concentration}
        rate = {"learning_rate": {"peak": self.rate, "schedule": "linear", "end_factor": 0.05}} if self.rate else {}
        return {
            "name": self.name,
            "model": {"python": f"benchmarks.experiments.problem_models:{self.model}"},
            "data": {**source, "shards": _SHARDS, "validation": 200, "normalise": self.normalise, **split},
            "training": {**rate, "local_epochs": PASSES},
            "validate": {"every": "epoch", "samples": "all"},
        }


@dataclass(frozen=True)
class StrangersProblem(Problem):
    """A problem as somebody brings it who tunes nothing: data, what they are, and a model."""

    normalise: str = "auto"
    units: tuple[int, ...] = ()
    """Layers of VCDL's `mlp`; empty: `model` is used."""
    task: str = ""
    train: tuple[str, ...] = ()
    """The layers that are trained; empty: all."""

    @property
    def is_made(self) -> bool:
        return self.name != "digits"

    def _job(self) -> dict[str, object]:
        model: dict[str, object] = (
            {"builtin": {"name": "mlp", "units": list(self.units)}}
            if self.units
            else {"python": f"benchmarks.experiments.problem_models:{self.model}"}
        )
        if self.train:
            model["train"] = list(self.train)
        task = {"task": self.task} if self.task else {}
        return {"name": self.name, "model": model, "data": {**self._source, "normalise": self.normalise, **task}}


PROBLEMS = (
    Problem("gratings", "images of stripes, with batch normalisation", "normalised_cnn", has_statistics=True),
    Problem("digits", "images of digits; non-iid shards", "plain_cnn", concentration=0.5, rate=0.01),
    Problem("topics", "texts; non-iid shards", "words", normalise="none", concentration=0.5),
    Problem("dropped", "texts, by a model with dropout", "dropped_words", normalise="none", concentration=0.5),
    Problem("table", "tables of numbers of different size", "dense", normalise="standardise"),
    Problem("waves", "time series", "series", normalise="standardise"),
    Problem(
        "phrases",
        "texts, by pairs of words; non-iid shards",
        "phrase_cnn",
        normalise="none",
        concentration=0.5,
        rate=0.01,
    ),
    Problem("pulses", "time series, read step by step", "recurrent", normalise="standardise", rate=0.01),
)
