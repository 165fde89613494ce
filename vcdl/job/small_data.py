"""Shards and batch size by the number of samples, where the job leaves them open: of 130 samples, fifty shards would be
subtasks of a single step. The number is read from the file's header; one that cannot be read keeps the usual settings.

What is lost to serial training follows the rounds of uploads for each slot (docs/decisions/101): shards that a small
fleet trains in turn are cut small, those that it trains all at once are few.
"""

from vcdl.job.data import DataSettings
from vcdl.job.training import TrainingSettings

_SHARD_SAMPLES = 32
"""Samples that a shard should have where a small fleet trains the shards in turn: four batches of 8."""
_SMALL_FLEET = 10
"""Slots."""
_TINY_SHARD_SAMPLES = 64
"""Samples that a shard should have at least where there are no more shards than slots."""
_ROUNDS = 8
"""Rounds of uploads that each such shard's slot should have for each of them."""
_FEWEST_SHARDS = 2
_STEPS = 4
"""Batches that a shard should have: on several slots few steps in a row cost more than small batches
(docs/decisions/111).
"""


def suited(data: DataSettings, training: TrainingSettings, epochs: int) -> tuple[DataSettings, TrainingSettings]:
    """Both with the number of shards and the batch size that suit the data's file, unless they are set."""
    samples = _training_samples(data)
    if samples is None:
        return data, training
    if "shards" not in data.model_fields_set:
        shards = min(data.shards, _shards(samples, epochs), max(1, samples // 2))
        data = data.model_copy(update={"shards": shards})
    if "batch_size" not in training.model_fields_set:
        size = _batch_size(samples // data.shards, training.batch_size)
        training = training.model_copy(update={"batch_size": size})
    return data, training


def _shards(samples: int, epochs: int) -> int:
    most = samples // _TINY_SHARD_SAMPLES
    if most >= _SMALL_FLEET:
        return samples // _SHARD_SAMPLES
    return max(_FEWEST_SHARDS, min(most, epochs // _ROUNDS))


def _batch_size(shard_samples: int, usual: int) -> int:
    """The largest power of two that leaves a shard some steps, up to the usual size."""
    size = 1
    while size * 2 * _STEPS <= shard_samples and size * 2 <= usual:
        size *= 2
    return size


def _training_samples(data: DataSettings) -> int | None:
    """Samples that are left to train on; None: a published set, or a file that cannot be read."""
    if data.from_ is not None:
        samples = data.from_.training_samples()
        return None if samples is None else _left(samples, data, validates=data.from_.validation is not None)
    if data.npz is None:
        return None
    from vcdl.wire.npz_form import NpzError, opened_npz  # it needs NumPy, which a job of a published set does not

    try:
        with opened_npz(data.npz) as file:
            shape = file.header("x_train").shape
            validates = "x_val" in file.names
    except (NpzError, OSError):
        return None
    if not shape or not shape[0]:
        return None
    return _left(shape[0], data, validates=validates)


def _left(samples: int, data: DataSettings, *, validates: bool) -> int:
    held_out = data.validation if isinstance(data.validation, int) else max(1, round(samples * data.validation))
    return samples if validates else max(1, samples - held_out)
