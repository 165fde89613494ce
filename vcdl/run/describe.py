"""Describe a job without training it: its model, its shards, and the files that a client downloads and uploads."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from vcdl.data import Facts, facts_of
from vcdl.errors import DataError
from vcdl.job.update import RULES
from vcdl.report.wording import plural
from vcdl.wire.inputs import InputShape, Outputs, count_of, format_shape
from vcdl.wire.layout import Layout, frozen_places
from vcdl.wire.workunit import FROZEN_FILE, INPUT_FILES, OUTPUT_FILE, Frozen, Normalisation, Workunit

if TYPE_CHECKING:
    from vcdl.job import Job

_SHOWN = ("training", "update", "transport", "pacing", "stop", "validate")
"""Sections of the job file that change the outcome of the training."""
_HDF5_BYTES = 500
"""Bytes of a weights file in addition to its weights, for HDF5's structures and the header."""
_NPZ_BYTES = 500
"""Bytes of a shard in addition to its samples, for the headers of the two arrays and the archive's directory."""


@dataclass(frozen=True)
class FileFacts:
    """One file that crosses the network for a subtask."""

    name: str
    size_bytes: int
    """Estimated bytes: weights as if compression saved nothing, and a shard of average length."""
    once: bool = False
    """Whether a client downloads the file only once, for its first subtask."""


@dataclass(frozen=True)
class LayerFacts:
    """A layer with weights."""

    path: str
    """The layer's name, preceded by those of the models that contain it; patterns of `model > train` and `lora` may use
    it."""
    parameters: int
    trainable_parameters: int


@dataclass(frozen=True)
class ModelFacts:
    """The model, as Keras counts it."""

    input_shape: InputShape
    outputs: Outputs
    layers: int
    parameters: int
    trainable_parameters: int
    frozen_parameters: int
    """Parameters that no training changes: clients download them once, and never upload them."""
    layers_with_weights: tuple[LayerFacts, ...]


@dataclass(frozen=True)
class ShardFacts:
    """The cut of the training samples into shards."""

    count: int
    samples: int
    """Training samples in all shards together."""
    smallest: int | None
    """Samples in the smallest shard, or None if that is unknown because shards are cut by labels or by a column."""
    largest: int | None
    """Samples in the largest shard, or None as for `smallest`."""
    validation_samples: int
    test_samples: int


@dataclass(frozen=True)
class Description:
    """Everything that `vcdl describe` shows."""

    job: str
    model: ModelFacts
    shards: ShardFacts
    downloads: tuple[FileFacts, ...]
    """The files that a client downloads for a subtask."""
    uploads: tuple[FileFacts, ...]
    """The files that a client uploads for a subtask."""
    rate: str
    """The learning rate of a subtask, as a formula (vcdl.job.lr_schedule)."""
    settings: Mapping[str, Any]
    """The sections that change the outcome, with every default and preset filled in."""
    packages: Mapping[str, str]
    """Section of the job file → the third-party package that its part comes from, with its version."""

    @property
    def download_bytes(self) -> int:
        """Bytes that a client downloads for each subtask, without the files that it downloads only once."""
        return sum(file.size_bytes for file in self.downloads if not file.once)

    @property
    def upload_bytes(self) -> int:
        """Bytes that a client uploads for each subtask."""
        return sum(file.size_bytes for file in self.uploads)

    def to_json(self) -> str:
        totals = {"download_bytes": self.download_bytes, "upload_bytes": self.upload_bytes}
        return json.dumps({**asdict(self), **totals}, indent=1) + "\n"


def describe_job(job: "Job", start: Any = None) -> Description:
    """Describe a job.

    A named data set is not read. Only the headers and the labels of a `.npz` file are read.

    Args:
        job: The job.
        start: The Keras model of the run that the job continues from, or None if it starts from fresh weights.

    Raises:
        DataError, ModelError: The data or the model cannot be used.
    """
    from vcdl.client.model import load_model
    from vcdl.client.trainer import Trainer
    from vcdl.codecs.choose import down_encoding, up_encoding
    from vcdl.models.build import build_model_json
    from vcdl.models.model_classes import load_data_with_model_classes
    from vcdl.models.trained import layer_paths

    facts = load_data_with_model_classes(job, facts_of)
    # Compute this before the model is built, which takes seconds: whether there are too few samples follows from two
    # numbers.
    shards = _shards(facts, job.data.shards, even=job.data.split == "iid" and job.data.by is None)
    model_json = build_model_json(
        job.model, facts.input_shape, facts.outputs, job.data.task, start, job.training.precision
    )
    model = load_model(model_json)
    parameters, places = int(model.count_params()), frozen_places(model)
    transport, layout = job.transport.to_wire(), Trainer(model_json, job.training_on(Normalisation())).layout
    params_bytes = down_encoding(transport, layout).most_bytes + _HDF5_BYTES
    update_bytes = up_encoding(transport, layout).most_bytes + _HDF5_BYTES
    shard_bytes = _NPZ_BYTES + round(facts.train_samples / shards.count * facts.sample_bytes * facts.packed)
    # Keep the order of INPUT_FILES, because `zip` below pairs them.
    sizes = (len(_workunit(job, facts, places).to_json()), len(model_json.encode()), params_bytes, shard_bytes)
    return Description(
        job=job.name,
        model=ModelFacts(
            input_shape=facts.input_shape,
            outputs=facts.outputs,
            layers=len(model.layers),
            parameters=parameters,
            trainable_parameters=_parameter_count(model.trainable_weights),
            frozen_parameters=Layout.of_frozen(model).size,
            layers_with_weights=tuple(
                LayerFacts(path, int(layer.count_params()), _parameter_count(layer.trainable_weights))
                for path, layer in layer_paths(model)
            ),
        ),
        shards=shards,
        downloads=(
            *(FileFacts(name, size) for name, size in zip(INPUT_FILES, sizes, strict=True)),
            *([FileFacts(FROZEN_FILE, 4 * places + _HDF5_BYTES, once=True)] if places else []),
        ),
        uploads=(FileFacts(OUTPUT_FILE, update_bytes),),
        rate=job.training.subtask_rate((), 0, 1.0).words(
            job.training.peak_rate, is_tried=job.training.tries_rates, has_moments=bool(layout.second_moments)
        ),
        settings={section: values for section, values in job.to_plain_values().items() if section in _SHOWN},
        packages={"update": package} if (package := RULES.package(job.update.rule)) else {},
    )


def model_ends(taken: InputShape, given: Outputs) -> tuple[str, str]:
    """Return texts for a model's input and output, for example `samples of shape (28, 28)` and `10 outputs`."""
    return f"samples of shape {format_shape(taken)}", plural(count_of(given), "output")


def _parameter_count(weights: Iterable[Any]) -> int:
    """Return how many numbers the given Keras variables have together."""
    return sum(math.prod(weight.shape) for weight in weights)


def _shards(facts: Facts, count: int, even: bool) -> ShardFacts:
    """Return the facts about `count` shards; `even` is whether they are cut at random and so have equal sizes.

    Raises:
        DataError: There are fewer samples than shards.
    """
    samples = facts.train_samples
    if samples < count:
        raise DataError(
            f"{samples} training samples are too few for {count} shards: set data > shards to at most {samples}"
        )
    smallest, rest = divmod(samples, count)
    largest = smallest + (1 if rest else 0)
    return ShardFacts(
        count=count,
        samples=samples,
        smallest=smallest if even else None,
        largest=largest if even else None,
        validation_samples=facts.val_samples,
        test_samples=facts.test_samples,
    )


def _normalisation(shape: InputShape, normalise: str) -> Normalisation:
    """Return a normalisation that takes as many bytes in JSON as the job's will."""
    if not isinstance(shape, tuple):
        return Normalisation(inputs=tuple((name, _normalisation(one, normalise)) for name, one in shape.items()))
    # The values do not matter, only how many digits they take in the JSON: a single scale, or one for each column.
    by_column = normalise == "standardise" or (normalise == "auto" and len(shape) == 1)
    numbers = shape[-1] if by_column else 1
    return Normalisation((1 / 255,) * numbers, (-1 / 3,) * numbers)


def _workunit(job: "Job", facts: Facts, frozen: int) -> Workunit:
    """Return a workunit that takes as many bytes in JSON as the job's workunits will."""
    training = job.training_on(_normalisation(facts.input_shape, job.data.normalise))
    return Workunit(
        job=job.name,
        epoch=1,
        shard=0,
        attempt=0,
        base_version=0,
        seed=job.seed,
        training=training,
        transport=job.transport.to_wire(),
        frozen=Frozen(frozen, "0" * 64) if frozen else None,
    )
