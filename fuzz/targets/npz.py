"""`.npz` files: a user's data set, splits and shards of a run, checkpoints of a client."""

import io
import json
import math
import random
import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fuzz.mutations import as_json, mutated, mutated_json
from fuzz.target import BrokenContractError, Target, hold
from vcdl.client.checkpoint import Checkpoint, Position
from vcdl.client.inputs import read_shard
from vcdl.client.slot import CHECKPOINT_FILE
from vcdl.client.trainer import TrainerState
from vcdl.data import facts_of, load_dataset, read_split
from vcdl.data.dataset import Dataset
from vcdl.data.normalisation import normalisation_of
from vcdl.data.rows import in_memory
from vcdl.errors import DataError, WorkunitError
from vcdl.job.data import DataSettings
from vcdl.wire.inputs import count_of, parts_of
from vcdl.wire.normalise import normalise
from vcdl.wire.workunit import Named, Normalisation, Training, Workunit

_WORDS = (
    b"\x93NUMPY\x01\x00", b"\x93NUMPY\x02\x00", b"'descr': '<f4'", b"'<f8'", b"'|O'", b"'>i8'", b"'<U1'", b"'|b1'",
    b"'<c8'", b"'fortran_order': True", b"'shape': (40, 3)", b"(-1,", b"(0,", b"(99999999999,", b"()", b"(1,)", b"((((",
    b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"x_train.npy", b"y_train.npy", b"x_val.npy", b"x.npy", b"y.npy",
    struct.pack("<d", 1e300), struct.pack("<d", float("nan")), struct.pack("<f", float("inf")), b"\xff" * 8, bytes(8),
)  # fmt: skip
_SHAPES = (
    "(40, 3)",
    "(40,)",
    "(-1, 3)",
    "(40, 0)",
    "(0, 3)",
    "(10**9, 10**9)",
    f"({10**18}, 0)",
    "(True, 3)",
    "(2,)" * 3,
)
_TYPES = (
    "<f4",
    "<f8",
    "<f2",
    ">f8",
    "<i8",
    "<u8",
    "|u1",
    "|b1",
    "|O",
    "<U3",
    "|S2",
    "<c16",
    "|V4",
    "<M8[s]",
    "<f16",
    "q9",
)


def packed(**arrays: object) -> bytes:
    """A `.npz` file of these arrays."""
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def mutated_npz(dice: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Half of the time the zip's bytes are changed, else the bytes of a member, with the right checksum."""
    if dice.random() < 0.4:
        return mutated(dice, data, others, _WORDS)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    except (zipfile.BadZipFile, zlib.error, struct.error, RuntimeError, ValueError, EOFError, OSError, LookupError):
        return mutated(dice, data, others, _WORDS)
    if not members:
        return mutated(dice, data, others, _WORDS)
    name = dice.choice(list(members))
    match dice.randrange(4):
        case 0:
            members[name] = _with_other_header(dice, members[name])
        case 1:
            members[dice.choice(("x_val.npy", "y_val.npy", "x_test.npy", "z.npy", "x", name))] = members[name]
        case _:
            members[name] = mutated(dice, members[name], list(members.values()), _WORDS)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", dice.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return made.getvalue()


def _with_other_header(dice: random.Random, member: bytes) -> bytes:
    data = member[10 + int.from_bytes(member[8:10], "little") :]
    text = f"{{'descr': '{dice.choice(_TYPES)}', 'fortran_order': False, 'shape': {dice.choice(_SHAPES)}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


_TASKS = ("classification", "regression", "multi_label", "sequence", "autoencoder")


class DataSets(Target):
    """A user's own data set. The first byte chooses the task."""

    name = "npz_data"
    refuses = (DataError,)

    def seeds(self) -> Sequence[bytes]:
        rng = np.random.default_rng(1)
        x, classes, numbers = rng.random((40, 3), np.float32), np.arange(40) % 4, rng.random((40, 2))
        images = rng.integers(0, 256, (40, 4, 4, 1), np.uint8)
        return [
            b"\0" + packed(x_train=x, y_train=classes),
            b"\1" + packed(x_train=x, y_train=numbers, x_val=x[:9], y_val=numbers[:9]),
            b"\0" + packed(x_train=images, y_train=classes, x_test=images[:5], y_test=classes[:5]),
            b"\1" + packed(x_train=x.astype(np.float64), y_train=numbers[:, 0]),
            b"\0" + packed(x_train=x, y_train=np.array(["ant", "bee"])[classes % 2], weight_train=numbers[:, 0]),
            b"\2" + packed(x_train=x, y_train=numbers > 0.5),
            b"\3" + packed(x_train=x, y_train=np.where(numbers > 0.2, classes[:, None], -100)),
            b"\4" + packed(x_train=images, x_val=images[:9]),
            b"\0" + packed(x_train_a=images, x_train_b=x, y_train=classes),
        ]

    def mutate(self, dice: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
        return data[:1] + mutated_npz(dice, data[1:], [other[1:] for other in others])

    def take(self, data: bytes) -> None:
        path = self.folder / "data.npz"
        path.write_bytes(data[1:])
        task = _TASKS[data[0] % len(_TASKS)] if data else "classification"
        mask = -100 if task == "sequence" else None
        settings = DataSettings(npz=path, task=task, mask=mask)  # type: ignore[arg-type]
        dataset = load_dataset(settings, seed=1)
        facts = facts_of(settings)
        hold(facts.train_samples == len(dataset.x_train) > 0, "another number of samples than said before")
        hold(facts.val_samples == len(dataset.x_val) > 0, "no validation samples")
        hold(facts.input_shape == dataset.input_shape, "another shape than said before")
        hold(facts.outputs == dataset.outputs, f"{facts.outputs} outputs, then {dataset.outputs}")
        hold(count_of(dataset.outputs) > 0, "no output")
        self._check(dataset, settings)

    def _check(self, dataset: Dataset, settings: DataSettings) -> None:
        for x, y in ((dataset.x_train, dataset.y_train), (dataset.x_val, dataset.y_val)):
            is_label = y.dtype in (np.int32, np.float32) or dataset.predicts_itself
            hold(is_label, f"labels of {y.dtype}")
            hold(bool(np.isfinite(y).all()), "labels that are not finite")
            for part in parts_of(in_memory(x)).values():
                hold(part.dtype.kind in "biuf", f"inputs of {part.dtype}")
                with np.errstate(over="ignore"):
                    hold(bool(np.isfinite(part.astype(np.float32)).all()), "inputs that are not finite")
        for part in parts_of(in_memory(dataset.x_train)).values():
            normalisation_of(part, settings)


class Splits(Target):
    """Files of a run: the server reads them as splits, a client as its shard."""

    name = "npz_shards"
    refuses = (DataError, WorkunitError)

    def seeds(self) -> Sequence[bytes]:
        rng = np.random.default_rng(2)
        return [
            packed(x=rng.random((20, 3), np.float32), y=np.arange(20, dtype=np.int32)),
            packed(x=rng.integers(0, 256, (20, 3), np.uint8), y=rng.random((20, 2), np.float32)),
            packed(x=rng.random((20, 3), np.float32)),
            packed(x=rng.random((20, 3), np.float32), y=np.arange(20), weights=rng.random(20, np.float32)),
        ]

    def mutate(self, dice: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
        return mutated_npz(dice, data, others)

    def take(self, data: bytes) -> None:
        path = self.folder / "shard.npz"
        path.write_bytes(data)
        with np.errstate(all="ignore"):
            shard = read_shard(self.folder, Normalisation((0.5,), (1.0,)), {"": (3,)})
        hold(len(shard.x) == len(shard.y) > 0, "not a label for each sample")
        hold(shard.x.dtype == np.float32 and shard.y.dtype in (np.int32, np.float32), "another number type")
        hold(bool(np.isfinite(shard.x).all() and np.isfinite(shard.y).all()), "numbers that are not finite")
        if shard.weights is not None:
            hold(shard.weights.shape == (len(shard.x),) and bool((shard.weights >= 0).all()), "weights of another kind")
        try:
            x, y = read_split(path)
        except DataError as error:
            raise BrokenContractError(f"the client reads a shard that the server refuses: {error}") from error
        hold(len(x) == len(y), "not a label for each sample")
        normalise(x, Normalisation())


class Checkpoints(Target):
    """A client's checkpoint: it is taken whole, or training starts over."""

    name = "checkpoints"
    refuses = (WorkunitError,)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        training = Training(Named("sgd"), 0.1, 8, 1, Named("mean_squared_error"))
        self._unit = Workunit("j", 1, 0, 0, 142, seed=1, training=training)
        optimizer = (np.array(13), np.array([0.5, 0.25], np.float32))
        self._state = TrainerState(np.arange(50, dtype=np.float32), optimizer, (np.array([7, 3], np.uint32),))

    def seeds(self) -> Sequence[bytes]:
        Checkpoint(Position(104, 1.25, 9.5), self._state).write(self.folder, self._unit)
        return [(self.folder / CHECKPOINT_FILE).read_bytes()]

    def mutate(self, dice: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
        if dice.random() < 0.6:
            return mutated_npz(dice, data, others)
        with np.load(io.BytesIO(others[0])) as file:
            arrays = dict(file)
        header = mutated_json(dice, json.loads(arrays["header"].tobytes()))
        return packed(**{**arrays, "header": np.frombuffer(as_json(header), np.uint8)})

    def take(self, data: bytes) -> None:
        (self.folder / CHECKPOINT_FILE).write_bytes(data)
        checkpoint = Checkpoint.read(self.folder, self._unit, self._state)
        if checkpoint is None:
            raise WorkunitError("training starts over")
        position = checkpoint.position
        hold(checkpoint.state.fits(self._state), "a state that does not fit")
        hold(type(position.samples) is int and position.samples >= 0, "a position that does not exist")
        numbers = (position.loss_sum, position.train_s, *position.times_s.values())
        hold(all(map(math.isfinite, numbers)), "a position that is not finite")
