"""Uploads: what a client may send as update.h5, checked as a whole and folded in as a stream.

The two ways must agree: what `UploadCheck.examine` takes, a store folds in, and nothing else.
"""

import json
import random
import zlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fuzz.mutations import as_json, mutated, mutated_json, odd_float32
from fuzz.target import Target, hold
from vcdl.checks import UploadCheck
from vcdl.checks.upload_reader import open_upload
from vcdl.codecs.encoding import Encoding
from vcdl.errors.refusal import Refused
from vcdl.loop.streamed_upload import FoldSettings, open_fold
from vcdl.rules.forecast import Forecast
from vcdl.stores.change import InMemory, fold_changes
from vcdl.trust.bounds import Bounds
from vcdl.trust.contract import UploadFacts
from vcdl.trust.measuring_pass import MeasuringPass
from vcdl.trust.step import StepCheck
from vcdl.wire.hdf5_form import ENCODED, HEADER_LIMIT_BYTES, WEIGHTS, prefix
from vcdl.wire.layout import Layout, Variable, Vector
from vcdl.wire.params import ParamsHeader
from vcdl.wire.weights import write_weights
from vcdl.wire.workunit import Named, Transport, UpdateHeader

WORKUNIT = "digits_e0003_s001_a0_v000142"
SAMPLES = 60
LAYOUT = Layout(
    (
        Variable("dense/kernel", (20, 25), 0),
        Variable("norm/moving_mean", (10,), 500),
        Variable("norm/moving_variance", (10,), 510),
        Variable("head/kernel", (10, 8), 520),
    )
).with_moments([("0_iteration", ()), ("1_velocity", (20, 25))])
TRANSPORTS = tuple(
    Transport(up=codec, compress=compress)
    for codec in (
        Named("float32"),
        Named("float16"),
        Named("bfloat16"),
        Named("int8"),
        Named("int8", {"levels": 15}),
        Named("top_k", {"share": 0.1}),
    )
    for compress in (False, True)
)
_LARGEST_NORM = 10 * LAYOUT.model.size**0.5


@dataclass(frozen=True)
class _Parts:
    """An upload taken apart, so that a change of one part leaves the checksum of the file's form right."""

    is_plain: bool
    header: bytes
    payload: bytes

    def joined(self) -> bytes:
        """The file, whole again."""
        dataset = WEIGHTS if self.is_plain else ENCODED
        header = self.header[:HEADER_LIMIT_BYTES] or b" "
        return prefix(header, len(self.payload) // dataset.item_bytes, dataset) + self.payload


class Uploads(Target):
    """The first byte of an input chooses the job's transport; the others are the file."""

    name = "uploads"
    refuses = (Refused,)
    words = (b"OHDR", b"weights", b"encoded", b"header", b'"format": 2', b"samples", b"fraction")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        rng = np.random.default_rng(7)
        self._base = np.float32(0.1) * rng.standard_normal(LAYOUT.size).astype(np.float32)
        for begin, end in ((510, 520), *LAYOUT.second_moments):
            self._base[begin:end] = np.abs(self._base[begin:end]) + np.float32(0.01)
        self._trained = self._base * np.float32(1.02) + np.float32(0.001)
        self._base_file, self._file = folder / "params.h5", folder / "update.h5"
        write_weights(self._base_file, self._base, ParamsHeader("digits", 142, LAYOUT.fingerprint).to_json())
        self._rule = Forecast(staleness_damping=0.25, compensation=0.4, averaging_window=3.0, horizon=1.0)
        own = Bounds(LAYOUT, 1.5, ()).row_of_step(self._trained - self._base, self._base, 1.0)
        self._bounds = Bounds(LAYOUT, 1.5, tuple(own.tolist()))
        self._ways = [check_of(transport).up for transport in TRANSPORTS]
        self._parts: dict[bytes, _Parts] = {}

    def seeds(self) -> Sequence[bytes]:
        found = []
        for number, way in enumerate(self._ways):
            way.write_upload(self._file, self._trained, self._base, header_of(way).to_json())
            file = self._file.read_bytes()
            found.append(bytes([number]) + file)
            header = header_of(way).to_json().encode()
            payload = file[len(prefix(header, 0, WEIGHTS if way.is_plain else ENCODED)) :]
            self._parts[found[-1]] = _Parts(way.is_plain, header, payload)
        return found

    def take(self, data: bytes) -> None:
        number = data[0] % len(TRANSPORTS) if data else 0
        transport, way = TRANSPORTS[number], self._ways[number]
        self._file.write_bytes(data[1:])
        check = check_of(transport)
        header = check.read_header(self._file, WORKUNIT)
        check_header(header)
        refused = None
        try:
            check.examine(self._file, WORKUNIT, self._base_file)
        except Refused as error:
            refused = error
        streamed = self._streamed(transport, header, None)
        hold((refused is None) == (streamed is None), f"as a whole {refused}, as a stream {streamed}")
        if refused is not None:
            raise refused
        self._check_weights(way)
        self._streamed(transport, header, self._bounds)

    def mutate(self, dice: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
        parts = self._parts.get(data)
        if parts is None or dice.random() < 0.15:
            return mutated(dice, data, others, self.words)
        header, payload = parts.header, parts.payload
        kind = dice.randrange(10)
        if kind < 4:
            header = self._other_header(dice, header)
        elif kind < 6 and parts.is_plain:
            at = 4 * dice.randrange(len(payload) // 4)
            payload = payload[:at] + odd_float32(dice) + payload[at + 4 :]
        elif kind < 8 and not parts.is_plain:
            payload = self._other_chunk(dice, payload)
        else:
            payload = mutated(dice, payload, [other[1:] for other in others])
        made = bytearray(data[:1] + _Parts(parts.is_plain, header, payload).joined())
        if dice.random() < 0.02:
            made[0] = dice.randrange(len(TRANSPORTS))
        return bytes(made)

    def _other_header(self, dice: random.Random, header: bytes) -> bytes:
        if dice.random() < 0.3:
            return mutated(dice, header, [header], (b'"samples"', b"1e400", b"NaN", b"[" * 3000, b"\xff"))
        return as_json(mutated_json(dice, json.loads(header)))

    def _other_chunk(self, dice: random.Random, payload: bytes) -> bytes:
        """Change what is in the one chunk, and frame it again."""
        raw, is_deflated = payload[4:], payload[3] >= 0x80
        if is_deflated:
            raw = zlib.decompress(raw)
        raw = mutated(dice, raw, [raw])
        deflate = is_deflated if dice.random() < 0.8 else not is_deflated
        chunk = zlib.compress(raw, dice.choice((0, 6))) if deflate else raw
        return (len(chunk) | (1 << 31 if deflate else 0)).to_bytes(4, "little") + chunk

    def _check_weights(self, way: Encoding) -> None:
        weights = np.empty(LAYOUT.size, np.float32)
        with open_upload(self._file, way, self._base_file) as upload:
            upload.read(0, weights)
        hold(bool(np.isfinite(weights).all()), "weights that are not finite were taken")
        trained = np.concatenate([weights[:500], weights[520:600]]).astype(np.float64)
        hold(float(np.sqrt(trained @ trained)) <= 1.001 * _LARGEST_NORM, "a norm beyond the limit was taken")
        for begin, end in LAYOUT.second_moments:
            hold(bool((weights[begin:end] >= 0).all()), "negative second moments were taken")

    def _streamed(self, transport: Transport, header: UpdateHeader, bounds: Bounds | None) -> Refused | None:
        """Fold the file in; returns why it is refused."""
        state = self._rule.state if bounds is None else bounds.state_of(self._rule)
        whole: Vector = state.initial(self._base.copy())
        facts = UploadFacts(3, 0, header.samples, header.fraction, base_version=142)

        def measuring(facts: UploadFacts, _: ExitStack) -> MeasuringPass | None:
            return None if bounds is None else MeasuringPass(bounds, facts, steps=StepCheck())

        settings = FoldSettings(LAYOUT, self._rule, measuring, transport)
        try:
            upload = open_fold(self._file, self._base_file, settings, facts, judge=check_of(transport).judge)
        except Refused as refused:
            return refused
        try:
            (weight,) = fold_changes([upload], InMemory(whole, state), state)
            if upload.refused is None:
                hold(bool(np.isfinite(whole).all()), "the shared weights became infinite")
                hold(0 <= weight <= 1, f"a weight of {weight}")
            return upload.refused
        finally:
            upload.close()


class Headers(Target):
    """The header of an upload alone: what the checks let through is within bounds."""

    name = "headers"
    refuses = (Refused,)
    words = (b'"samples": ', b'"fraction": ', b'"loss": ', b"1e308", b"-1", b"NaN", b"Infinity", b"null", b"\\ud800")

    def seeds(self) -> Sequence[bytes]:
        whole = header_of(check_of(TRANSPORTS[0]).up)
        part = UpdateHeader.from_json(whole.to_json().replace('"samples": 60', '"samples": 30').replace("1.0", "0.5"))
        return [whole.to_json().encode(), part.to_json().encode()]

    def mutate(self, dice: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return mutated(dice, data, others, self.words)
        return as_json(mutated_json(dice, value)) if dice.random() < 0.7 else mutated(dice, data, others, self.words)

    def take(self, data: bytes) -> None:
        file = self.folder / "update.h5"
        file.write_bytes(prefix(data[:HEADER_LIMIT_BYTES] or b" ", LAYOUT.size) + bytes(4 * LAYOUT.size))
        check_header(check_of(TRANSPORTS[0]).read_header(file, WORKUNIT))


def check_of(transport: Transport) -> UploadCheck:
    """The checks of a job that asks for this transport, before its first upload."""
    return UploadCheck("digits", LAYOUT, (20, 30, 40), 2, initial_norm=1.0, transport=transport)


def header_of(way: Encoding) -> UpdateHeader:
    """An honest header."""
    return UpdateHeader("digits", WORKUNIT, 142, LAYOUT.fingerprint, SAMPLES, 1.0, 2.5, 0.4, way.label)


def check_header(header: UpdateHeader) -> None:
    """Everything that must hold for a header that was let through."""
    hold((header.job, header.workunit, header.base_version) == ("digits", WORKUNIT, 142), "of another workunit")
    hold(header.layout == LAYOUT.fingerprint, "of another layout")
    hold(type(header.samples) is int and 0 < header.samples <= SAMPLES, "samples beyond the shard")
    hold(0 < header.fraction <= 1, "a fraction out of bounds")
    hold(abs(header.fraction - header.samples / SAMPLES) < 1e-6, "a fraction of other samples")
    hold(0 <= header.train_s <= 1e9, "an endless training")
    hold(abs(header.loss) <= 3.5e38, "a loss beyond float32")
