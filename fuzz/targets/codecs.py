"""Codecs: the bytes of one chunk, and files of encoded weights as a client downloads them."""

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fuzz.mutations import mutated
from fuzz.target import Target, hold
from vcdl.client.inputs import read_params
from vcdl.codecs.base import Codec
from vcdl.codecs.bfloat16 import BFloat16
from vcdl.codecs.choose import down_encoding
from vcdl.codecs.float16 import Float16
from vcdl.codecs.float32 import Float32
from vcdl.codecs.int8 import Int8
from vcdl.codecs.logarithmic import Logarithmic
from vcdl.codecs.top_k import TopK
from vcdl.errors import WeightsFileError, WorkunitError
from vcdl.wire.hdf5_form import ENCODED, WEIGHTS, prefix
from vcdl.wire.layout import Layout, Variable
from vcdl.wire.params import ParamsHeader
from vcdl.wire.workunit import PARAMS_FILE, Named, Normalisation, Training, Transport, Workunit

_CODECS: tuple[Codec, ...] = (
    Float32(), Float16(), BFloat16(), Int8(), Int8(15), Int8(1), TopK(0.1), TopK(1.0), Logarithmic(),
)  # fmt: skip
_SIZES = (0, 1, 255, 256, 257, 700)
_KERNEL = 600
_LAYOUT = Layout((Variable("kernel", (_KERNEL,), 0), Variable("norm/moving_variance", (20,), _KERNEL)))
_TRANSPORTS = (
    Transport(),
    Transport(compress=True),
    Transport(down=Named("bfloat16")),
    Transport(down=Named("int8"), compress=True),
)


class Codecs(Target):
    """Two bytes choose codec and size; the others are the chunk."""

    name = "codecs"
    refuses = (WeightsFileError,)

    def seeds(self) -> Sequence[bytes]:
        rng, found = np.random.default_rng(3), []
        for number, codec in enumerate(_CODECS):
            for place, size in enumerate(_SIZES):
                chunk = (rng.standard_normal(size) * np.exp(4 * rng.standard_normal(size))).astype(np.float32)
                found.append(bytes([number, place]) + codec.encode(codec.thinned(chunk, [])))
        return found

    def take(self, data: bytes) -> None:
        if len(data) < 2:
            raise WeightsFileError("no chunk")
        codec, size = _CODECS[data[0] % len(_CODECS)], _SIZES[data[1] % len(_SIZES)]
        room = np.full(size + 1, 7.0, np.float32)
        codec.decode(memoryview(data)[2:], room[:size])
        out = room[:size]
        hold(room[size] == 7.0, "a number beyond the chunk was written")
        hold(len(data) - 2 <= codec.most_bytes(size), "more bytes than the codec's bound were taken")
        if np.isfinite(out).all():
            hold(len(codec.encode(out.copy())) <= codec.most_bytes(size), "its own numbers do not fit")
        if isinstance(codec, Int8):
            count = -(-size // 256)
            scales = np.frombuffer(data[2 : 2 + 4 * count], np.uint8).reshape(4, count).T.copy().view("<f4")[:, 0]
            levels = int(codec.label[5:-1])
            with np.errstate(invalid="ignore"):
                most = np.repeat(scales, 256)[:size].astype(np.float64) * levels * (1 + 1e-6)
                hold(not (np.abs(out[np.isfinite(out)]) > most[np.isfinite(out)]).any(), "a number beyond the levels")


class Params(Target):
    """Files of params.h5, as a client gets them from a server, a proxy or a broken disk."""

    name = "params"
    refuses = (WeightsFileError, WorkunitError)
    words = (b"format", b"version", b"layout", b"OHDR", b"encoded", b"weights")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        training = Training(Named("sgd"), 0.1, 8, 1, Named("mean_squared_error"), normalisation=Normalisation())
        self._units = [
            Workunit("j", 1, 0, 0, 142, seed=1, training=training, transport=transport) for transport in _TRANSPORTS
        ]

    def seeds(self) -> Sequence[bytes]:
        vector = np.abs(np.random.default_rng(5).standard_normal(_LAYOUT.size)).astype(np.float32)
        header, found = ParamsHeader("j", 142, _LAYOUT.fingerprint).to_json(), []
        for number, transport in enumerate(_TRANSPORTS):
            down_encoding(transport, _LAYOUT).write(self.folder / "params.h5", vector, header)
            found.append(bytes([number]) + (self.folder / "params.h5").read_bytes())
        return found

    def mutate(self, dice: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
        header = ParamsHeader("j", 142, _LAYOUT.fingerprint).to_json().encode()
        is_plain = data[:1] == b"\0"
        dataset = WEIGHTS if is_plain else ENCODED
        start = len(prefix(header, 0, dataset))
        if dice.random() < 0.3 or data not in others:
            return mutated(dice, data, others, self.words)
        payload = data[1 + start :]
        if dice.random() < 0.5:
            header = mutated(dice, header, [header], self.words)[:1000] or b" "
        else:
            payload = mutated(dice, payload, [payload])
        return data[:1] + prefix(header, len(payload) // dataset.item_bytes, dataset) + payload

    def take(self, data: bytes) -> None:
        unit = self._units[data[0] % len(self._units) if data else 0]
        (self.folder / "params.h5").write_bytes(data[1:])
        vector, _ = read_params(self.folder / PARAMS_FILE, unit, _LAYOUT, unit.base_version)
        hold(vector.shape == (_LAYOUT.size,) and bool(np.isfinite(vector).all()), "weights that are not finite")
