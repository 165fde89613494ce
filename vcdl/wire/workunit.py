"""The messages between server and client: workunit.json and the header of an upload. Standard library only.

Both are decoded strictly: every unknown key or wrong type raises WorkunitError.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from vcdl.errors import WorkunitError
from vcdl.wire.fields import FORMAT, NEWER, expected, positive, read_object, text, to_raw

INPUT_FILES = ("workunit.json", "model.json", "params.h5", "shard.npz")
"""Logical names of a workunit's inputs, the same on every grid."""
DESCRIPTION_FILE, MODEL_FILE, PARAMS_FILE, SHARD_FILE = INPUT_FILES
DESCRIPTION_SUFFIX = ".json"
FROZEN_FILE = "frozen.h5"
"""Logical name of a further input, where the job's model has frozen weights."""
OUTPUT_FILE = "update.h5"

STAGES = ("host", "start", "build", "prepare", "first", "paused", "checkpoint", "write")
"""Stages of a subtask that only its client can time (vcdl.profile). In order of time, after its files have arrived:
until the process starts, until Keras is imported, until the model is built, until the inputs are read, the first batch
(with compilation). Then: time suspended or throttled, writing checkpoints, and fetching the weights from the device.
"""
# Most levels of lists and objects in arguments: more than any part of Keras has, and few enough for safe recursion.
_DEEPEST = 20
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TURN = 10_000
"""First attempt number of the second turn, so that a name contains its turn: a turn usually needs fewer attempts
(`attempt_after` otherwise)."""
_OWN = 1_000_000_000
"""Added to the attempt number of the server's own training, so that no number of failures of hosts reaches it."""
_MORE = 10 * _OWN
"""Added for each ten thousand attempts within a turn, as hosts may fail many times a second."""
NAME_FORM = r"([a-z0-9][a-z0-9_-]*)_e([0-9]{4,18})_s([0-9]{3,18})_a([0-9]{1,18})_v([0-9]{6,18})"
"""The pattern of a workunit's name, which cannot lead out of a folder."""
_NAME = re.compile(NAME_FORM)


def _arguments(raw: Any, key: str) -> Mapping[str, Any]:
    """Return decoded arguments of a part of Keras; raise WorkunitError if they are nested too deeply."""
    if not isinstance(raw, dict) or _is_deeper(raw, _DEEPEST):
        raise expected(key, f"an object of at most {_DEEPEST} levels of lists and objects", raw)
    return raw


def _is_deeper(value: Any, levels: int) -> bool:
    """Return whether lists and objects are nested more than `levels` deep."""
    if not isinstance(value, list | dict):
        return False
    inside = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(one, levels - 1) for one in inside)


def _sha256(raw: Any, key: str) -> str:
    if not isinstance(raw, str) or not _SHA256.fullmatch(raw):
        raise expected(key, "64 hex digits", raw)
    return raw


def _checksum(raw: Any, key: str) -> str:
    return "" if raw == "" else text(raw, key)


def _hex(raw: Any, key: str) -> str:
    """Decode bytes in hex digits.

    Raises:
        TypeError, ValueError: It is no such text.
    """
    return bytes.fromhex(raw).hex()


@dataclass(frozen=True)
class Named:
    """An object that Keras knows by name (an optimizer, a loss, a metric), with its arguments."""

    name: str
    arguments: Annotated[Mapping[str, Any], _arguments] = field(default_factory=dict)


@dataclass(frozen=True)
class Normalisation:
    """`x ↦ x · scale + offset` in float32, on the last axis: one number, or one per channel."""

    scale: tuple[float, ...] = (1.0,)
    offset: tuple[float, ...] = (0.0,)
    integers: bool = False
    """Whether x are whole numbers that stay unchanged, in int32, without scale and offset."""
    inputs: tuple[tuple[str, "Normalisation"], ...] = ()
    """Input's name → its normalisation, for a model with several inputs; the other fields are not used then."""

    def __post_init__(self) -> None:
        if any(of_input.inputs for _, of_input in self.inputs):
            raise ValueError("the normalisation of an input has inputs of its own")


SharedOptimizerState = Literal["auto", "none", "second_moment", "all"]


@dataclass(frozen=True)
class Output:
    """One of several outputs; its loss has the factor `weight` in the sum."""

    name: str
    """Keras' name of the output."""
    loss: Named
    metrics: tuple[Named, ...] = ()
    weight: float = 1.0


@dataclass(frozen=True)
class Training:
    """The settings of a training: all that a client may know about the job."""

    optimizer: Named
    learning_rate: float
    """The rate of this training, with the job's schedule and scaling applied to its peak."""
    batch_size: Annotated[int, positive]
    local_epochs: Annotated[int, positive]
    loss: Named
    metrics: tuple[Named, ...] = ()
    normalisation: Normalisation = Normalisation()
    share_optimizer_state: SharedOptimizerState = "none"
    """The part of the optimizer's state that is sent with the weights; auto: the second moment, if it keeps one."""
    outputs: tuple[Output, ...] = ()
    """The outputs of a model with several; `loss` and `metrics` are not used then."""
    target_s: float | None = field(default=None, metadata=NEWER)
    """Seconds of training after which a subtask ends, with the part trained by then; None: all of it is trained."""

    def without_metrics(self) -> "Training":
        """Return the settings without metrics, for callers that only read the loss."""
        return replace(self, metrics=(), outputs=tuple(replace(output, metrics=()) for output in self.outputs))


@dataclass(frozen=True)
class Transport:
    """The encoding of weights in both directions: names of vcdl.codecs with their arguments."""

    down: Named = Named("float32")
    up: Named = Named("float32")
    compress: bool = False
    """Whether the codecs' output is also compressed, without loss."""
    feedback: bool = field(default=False, metadata=NEWER)
    """Whether a host keeps the residual of its codec, and adds it to its next upload of the job."""
    moment_block: Annotated[int, positive] = field(default=1, metadata=NEWER)
    """Number of neighbouring second moments that are sent as their mean, where a codec rounds."""
    upload_share: float | None = field(default=None, metadata=NEWER)
    """The most seconds of sending, as a fraction of those of training, for a codec of variable length; None: the
    codec's own."""


PLAIN = Transport()
"""Transport without loss, in plain weights files."""


@dataclass(frozen=True)
class Frozen:
    """The identity of the file of frozen weights."""

    size: Annotated[int, positive]
    """Number of weights."""
    sha256: Annotated[str, _sha256]
    """SHA-256 of the file, in hex digits."""


@dataclass(frozen=True)
class Workunit:
    """One subtask: train `shard` in `epoch`, starting from weights of `base_version`."""

    job: str
    epoch: int
    shard: int
    attempt: int
    base_version: int
    seed: int
    training: Training
    transport: Transport = PLAIN
    frozen: Frozen | None = None
    """The file of frozen weights, or None if the model has none."""
    newest: str | None = None
    """The address of the signed statement of the job's newest weights (vcdl.wire.newest); None: start from the base."""
    begins: int | None = field(default=None, metadata=NEWER)
    """Number of samples of its shard that earlier subtasks have trained: it continues there in the shard's endless
    order (vcdl.client.batches). None: it has an order of its own."""
    taken: Annotated[str, _hex] | None = field(default=None, metadata=NEWER)
    """Which uploads were applied lately (vcdl.wire.taken), as hex digits. None if hosts keep no residuals."""

    @property
    def name(self) -> str:
        """The unique name, from job, epoch, shard, attempt and base version: `<job>_e0003_s017_a0_v000142`."""
        return str(WorkunitName(self.job, self.epoch, self.shard, self.attempt, self.base_version))

    @property
    def description_file(self) -> str:
        """The unique file name of its workunit.json, for folders with the files of many workunits."""
        return f"{self.name}{DESCRIPTION_SUFFIX}"

    def to_json(self) -> str:
        return self._json

    @cached_property  # cached, because it is both written and measured
    def _json(self) -> str:
        return json.dumps({"format": FORMAT, **to_raw(self)}, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, content: str) -> Self:
        """Decode workunit.json. Raises WorkunitError."""
        return read_object(cls, content, "workunit.json")


@dataclass(frozen=True)
class UpdateHeader:
    """A client's description of its upload; nothing in it is trusted before vcdl.checks has checked it."""

    job: str
    workunit: str
    base_version: int
    layout: str
    """Fingerprint of the model's layout."""
    samples: int
    """Number of training samples seen, over all local epochs."""
    fraction: float
    """Trained fraction of the subtask: 1, or less after "finish now"."""
    train_s: float
    """Seconds of training, over all restarts of the subtask."""
    loss: float
    """Mean training loss of the last local epoch."""
    codec: str = "float32"
    """The label of the encoding of its weights (vcdl.codecs.Encoding)."""
    backend: str = "unknown"
    """Keras' backend, which determines random numbers."""
    times_s: Mapping[str, float] = field(default_factory=dict)
    """Stage → seconds over all restarts, for STAGES; a stage without time is left out. `first` is a part of `train_s`.
    """
    base_checksum: Annotated[str, _checksum] = field(default="", metadata=NEWER)
    """The checksum in the header of the weights that it started from. Empty from older clients."""
    machine: str = field(default="", metadata=NEWER)
    """Version, processor and memory of the client, as text for users. Empty from older clients."""

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **to_raw(self)}, sort_keys=True)

    @classmethod
    def from_json(cls, content: str) -> Self:
        """Decode an update's header. Raises WorkunitError."""
        header = read_object(cls, content, "update header")
        if not set(header.times_s) <= set(STAGES):
            raise expected("times_s", f"seconds of {', '.join(STAGES)}", sorted(header.times_s))
        return header


def subtask_name(epoch: int, shard: int, turn: int = 0) -> str:
    """Return a subtask's name, under which it is applied exactly once: `e0003_s017`, or `e0003_s017_t1` in turn 1."""
    return f"e{epoch:04d}_s{shard:03d}" + (f"_t{turn}" if turn else "")


def attempt_after(attempt: int) -> int:
    """Return the attempt number that follows `attempt` within the same turn of a subtask."""
    # The number after the last of a turn would begin the next turn, so further attempts are numbered far above all
    # turns.
    return attempt + 1 if (attempt + 1) % _TURN else attempt + 1 - _TURN + _MORE


@dataclass(frozen=True)
class WorkunitName:
    """The parts of a workunit's name."""

    job: str
    epoch: int
    shard: int
    attempt: int
    """The number of the attempt, from 0. It also encodes the turn (in steps of 10,000) and whether it is the server's
    own; read `turn`, `attempt_in_turn` and `is_own`."""
    base_version: int

    def __str__(self) -> str:
        return f"{self.job}_{subtask_name(self.epoch, self.shard)}_a{self.attempt}_v{self.base_version:06d}"

    @property
    def subtask(self) -> str:
        """The name of its subtask, such as `e0003_s017`. Of all attempts at a subtask one is applied."""
        return subtask_name(self.epoch, self.shard, self.turn)

    @property
    def turn(self) -> int:
        """How often the subtask was applied and then reissued, because its update was a lie or partial."""
        return self.attempt % _OWN // _TURN

    @property
    def attempt_in_turn(self) -> int:
        """The number of the attempt in its turn, from 0."""
        return self.attempt % _TURN + self.attempt // _MORE * _TURN

    @property
    def is_own(self) -> bool:
        """Whether it is an attempt by the server itself, which no host gets (vcdl.trust.trials)."""
        return self.attempt % _MORE >= _OWN

    @property
    def own_attempt(self) -> int:
        """The attempt number with which the server trains the same subtask itself, from the same weights."""
        return self.attempt + _OWN

    @property
    def begins_turn(self) -> bool:
        """Whether it is the first attempt after its subtask was reissued."""
        return self.turn > 0 and self.attempt_in_turn == 0

    @property
    def next_turn(self) -> int:
        """The attempt number with which the subtask is reissued after this attempt's update was applied."""
        return (self.turn + 1) * _TURN

    @classmethod
    def parse(cls, name: str) -> Self:
        """Split a workunit's name. Raises WorkunitError."""
        match = _NAME.fullmatch(name)
        if match is None:
            raise WorkunitError(f"{name[:200]!r} is not the name of a workunit")
        job, epoch, shard, attempt, base_version = match.groups()
        return cls(job, int(epoch), int(shard), int(attempt), int(base_version))
