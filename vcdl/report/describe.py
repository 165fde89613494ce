"""What a job is made of, without its data: the model, the shards, and what a volunteer downloads and uploads."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from vcdl.data import Facts, facts_of
from vcdl.errors import DataError
from vcdl.run.prepared import training_of
from vcdl.workunit import INPUT_FILES, OUTPUT_FILE, Normalisation, Workunit

if TYPE_CHECKING:
    from vcdl.job import Job

_SHOWN = ("training", "update", "transport", "schedule", "stop", "validate")
"""Sections of the job file that make a difference to what is learned."""
_HDF5_BYTES = 500
"""Of a weights file beside its weights: HDF5's structures and the header."""
_NPZ_BYTES = 500
"""Of a shard beside its samples: the two arrays' headers and the archive's directory."""


@dataclass(frozen=True)
class FileFacts:
    """One file that crosses the network for a subtask."""

    name: str
    size_bytes: int
    """Estimated; weights as if compression made nothing of them smaller; the shard's is that of a shard of average length."""


@dataclass(frozen=True)
class ModelFacts:
    """The model, as Keras counts it."""

    input_shape: tuple[int, ...]
    outputs: int
    layers: int
    parameters: int
    trainable_parameters: int


@dataclass(frozen=True)
class ShardFacts:
    """How the training samples are cut."""

    count: int
    samples: int
    """In all shards together."""
    smallest: int | None
    """Samples in the smallest shard; unknown (None) for a Dirichlet split, which depends on the labels."""
    largest: int | None
    validation_samples: int
    test_samples: int


@dataclass(frozen=True)
class Description:
    """All that `vcdl describe` shows."""

    job: str
    model: ModelFacts
    shards: ShardFacts
    downloads: tuple[FileFacts, ...]
    """For one subtask."""
    uploads: tuple[FileFacts, ...]
    """By one subtask."""
    settings: Mapping[str, Any]
    """How it trains, as the job file would say it with every default and preset filled in."""

    @property
    def download_bytes(self) -> int:
        return sum(file.size_bytes for file in self.downloads)

    @property
    def upload_bytes(self) -> int:
        return sum(file.size_bytes for file in self.uploads)

    def to_json(self) -> str:
        totals = {"download_bytes": self.download_bytes, "upload_bytes": self.upload_bytes}
        return json.dumps({**asdict(self), **totals}, indent=1) + "\n"


def describe(job: "Job") -> Description:
    """Describe a job.

    Of a named data set nothing is read, of a `.npz` the headers and the labels. Raises DataError and ModelError.
    """
    from vcdl.client.model import load_model
    from vcdl.client.trainer import Trainer
    from vcdl.codecs.choose import down_encoding, up_encoding
    from vcdl.models import build_model_json

    facts = facts_of(job.data)
    shards = _shards(facts, job.data.shards, even=job.data.split == "iid")
    model_json = build_model_json(job.model, facts.input_shape, facts.outputs, job.data.task)
    model = load_model(model_json)
    parameters = int(model.count_params())
    transport, layout = job.transport.told, Trainer(model_json, training_of(job, Normalisation())).layout
    params_bytes = down_encoding(transport, layout).most_bytes + _HDF5_BYTES
    update_bytes = up_encoding(transport, layout).most_bytes + _HDF5_BYTES
    shard_bytes = _NPZ_BYTES + round(facts.train_samples / shards.count * facts.sample_bytes * facts.packed)
    sizes = (len(_workunit(job, facts).to_json()), len(model_json.encode()), params_bytes, shard_bytes)
    return Description(
        job=job.name,
        model=ModelFacts(
            input_shape=facts.input_shape,
            outputs=facts.outputs,
            layers=len(model.layers),
            parameters=parameters,
            trainable_parameters=sum(math.prod(weight.shape) for weight in model.trainable_weights),
        ),
        shards=shards,
        downloads=tuple(FileFacts(name, size) for name, size in zip(INPUT_FILES, sizes, strict=True)),
        uploads=(FileFacts(OUTPUT_FILE, update_bytes),),
        settings={section: values for section, values in job.resolved().items() if section in _SHOWN},
    )


def _shards(facts: Facts, count: int, even: bool) -> ShardFacts:
    samples = facts.train_samples
    if samples < count:
        raise DataError(
            f"{samples} training samples are too few for {count} shards: set data > shards to at most {samples}"
        )
    smallest, rest = divmod(samples, count)
    largest = smallest + (1 if rest else 0)
    return ShardFacts(
        count,
        samples,
        smallest if even else None,
        largest if even else None,
        facts.val_samples,
        facts.test_samples,
    )


def _workunit(job: "Job", facts: Facts) -> Workunit:
    """One like those the job will have, for its size."""
    numbers = facts.input_shape[-1] if job.data.normalise == "standardise" else 1
    training = training_of(job, Normalisation((1 / 255,) * numbers, (-1 / 3,) * numbers))
    return Workunit(job.name, 1, 0, 0, 0, job.seed, training, job.transport.told)
