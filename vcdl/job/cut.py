"""Choose the number of shards and the batch size of a job from its samples and slots, where the job file sets none.

Compared with serial training, a distributed job loses accuracy if each slot uploads too few times (docs/decisions/101).
So the more slots there are, the more shards are made. A small set that fits into one training has few shards or a
single one instead. If the data file cannot be read, the defaults stay, and reading it later reports the error.
"""

import math

from vcdl.job.data import SOURCES, DataSettings
from vcdl.job.training import TrainingSettings

SMALL_FLEET = 10
"""Slots that are assumed for a fleet of unknown size: a BOINC project, a pool, or a plan (docs/decisions/101)."""
ENOUGH_ROUNDS = 8
"""Rounds of uploads for each slot from which on more rounds gain little (docs/decisions/101)."""
_SHARDS_FOR_SLOT = 10
_MOST_SHARDS = 200, 400
"""Most shards chosen: _SHARDS_FOR_SLOT for each slot, within these bounds. Each shard is a subtask more in every epoch,
with a start and two transfers of the weights. 400 gained nothing on ten slots and a point on forty; more slots were not
measured (docs/decisions/101)."""
_FEWEST_BATCHES = 2
"""Least batches of a shard where shards are chosen for many slots, so that a subtask has some steps."""
# Shards of 64 samples learned less on eleven small problems. With 16 a first job on two workers took up to half as long
# again (decision 101).
_SHARD_SAMPLES = 32
"""Samples that a shard should have on few slots: four batches of 8."""
_TINY_SHARD_SAMPLES = 64
"""Least samples of a shard of a tiny set, which is one with fewer such shards than SMALL_FLEET has slots."""
_SHARD_EPOCHS = 32
"""Epochs for each further shard of a tiny set: each is trained on its own slot, with fewer sequential steps."""
_FEW_SLOTS = 4
"""Slots up to which a fleet counts as one machine, on which a subtask costs some 10 ms, and late uploads cost little.
"""
_LONG_SHARD_SAMPLES = 256
"""Samples that a shard should have on so few slots: with 32 a small table took twice its processor time."""
_SHARDS_A_SLOT = 4
"""Shards for each of so few slots, however few the samples: otherwise slots wait for each other at an epoch's end."""
_STEPS = 4
"""Batches that a shard should have on few slots: on several, few sequential steps cost more than small batches
(docs/decisions/101)."""
# Jobs of fewer steps learned more with small batches at ten and twenty slots, and longer ones did not need them
# (decision 101).
_STEPS_IN_A_ROW = 1300
"""Sequential steps of a whole job on one slot, below which its batches are made small."""
# Batches of 4 were worse or level (decision 101), and take a processor longer for a sample.
_SMALL_BATCH = 8


def fit_to_slots(
    data: DataSettings, training: TrainingSettings, epochs: int, slots: int
) -> tuple[DataSettings, TrainingSettings]:
    """Return copies of both sections with `shards` and `batch_size` chosen where the job file does not set them.

    Args:
        data: The section `data`. If its number of samples is unknown, both sections are returned unchanged.
        training: The section `training`.
        epochs: The job's epochs.
        slots: Subtasks that are trained at the same time.
    """
    samples = _training_samples(data)
    if samples is None:
        return data, training
    is_open, few = "shards" not in data.model_fields_set, _few_shards(samples, epochs, data)
    if "batch_size" not in training.model_fields_set:
        size = _batch_size(samples // few, _STEPS, training.batch_size)
        # The user's own `shards` may make small shards, whose batches must be small enough that each shard still has
        # some steps.
        if not is_open:
            shard = samples // data.shards
            small = min(size, _batch_size(shard, _FEWEST_BATCHES, training.batch_size))
            size = max(small, _batch_size(shard, _STEPS, training.batch_size))
        used = slots if is_open else min(slots, data.shards)
        steps = epochs * samples * training.passes // (size * training.batches_a_step * used)
        # Smaller batches give more sequential steps without another pass over the data. A tiny set needs none, because
        # it is trained on few slots anyway.
        if steps < _STEPS_IN_A_ROW and not _is_tiny(samples):
            size = min(size, _SMALL_BATCH)
        training = training.model_copy(update={"batch_size": size})
    if not is_open or _is_tiny(samples):
        return data.model_copy(update={"shards": few if is_open else data.shards}), training
    wanted = enough_shards(epochs, slots)
    finest = samples // (max(_FEWEST_BATCHES, training.batches_a_step) * training.batch_size)
    # On few slots few uploads are late, so long shards cost no accuracy and save the 10 ms of each subtask (decision
    # 147).
    if slots <= _FEW_SLOTS:
        few = min(few, max(samples // _LONG_SHARD_SAMPLES, _SHARDS_A_SLOT * slots))
    most = min(max(_SHARDS_FOR_SLOT * slots, _MOST_SHARDS[0]), _MOST_SHARDS[1])
    return data.model_copy(update={"shards": max(few, min(wanted, finest, most))}), training


def enough_shards(epochs: int, slots: int) -> int:
    """Return the number of shards with which every slot makes ENOUGH_ROUNDS; with fewer, the job learns less."""
    return math.ceil(ENOUGH_ROUNDS * slots**2 / epochs)


def _is_tiny(samples: int) -> bool:
    return samples // _TINY_SHARD_SAMPLES < SMALL_FLEET


def _few_shards(samples: int, epochs: int, data: DataSettings) -> int:
    """Return the number of shards where slots do not matter: by samples, and for a tiny set also by epochs."""
    if not _is_tiny(samples):
        return min(data.shards, samples // _SHARD_SAMPLES)
    # A single shard always has the class mix of the whole set, so `split: dirichlet` has an effect from two shards on.
    fewest = 2 if data.split == "dirichlet" else 1
    return min(max(fewest, min(samples // _TINY_SHARD_SAMPLES, 1 + epochs // _SHARD_EPOCHS)), max(1, samples // 2))


def _batch_size(shard_samples: int, steps: int, usual: int) -> int:
    """Return the largest batch size, a power of two up to `usual`, with which a shard still has `steps` batches."""
    size = 1
    while size * 2 * steps <= shard_samples and size * 2 <= usual:
        size *= 2
    return size


def _training_samples(data: DataSettings) -> int | None:
    """Return the number of samples without those for validation; None: it is unknown or the file cannot be read."""
    if data.from_ is not None:
        samples = data.from_.training_samples()
        return (
            None
            if samples is None
            else _samples_to_train_on(samples, data, validates=data.from_.validation is not None)
        )
    if data.npz is None:
        return _samples_to_train_on(SOURCES[str(data.dataset)].FACTS.train_samples, data, validates=False)
    from vcdl.wire.npz_form import NpzError, open_npz  # it needs NumPy

    try:
        with open_npz(data.npz) as file:
            shape = file.header("x_train").shape
            validates = "x_val" in file.names
    except (NpzError, OSError):
        return None
    if not shape or not shape[0]:
        return None
    return _samples_to_train_on(shape[0], data, validates=validates)


def _samples_to_train_on(samples: int, data: DataSettings, *, validates: bool) -> int:
    held_out = data.validation if isinstance(data.validation, int) else max(1, round(samples * data.validation))
    return samples if validates else max(1, samples - held_out)
