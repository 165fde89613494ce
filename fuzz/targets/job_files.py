"""YAML files that a person writes: jobs, fleets of a cloud, fleets of simulated clients."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

import yaml

from fuzz.mutations import mutated, mutated_json
from fuzz.target import Target, hold
from vcdl.errors import FleetError, JobError
from vcdl.fleet.settings import load_fleet_settings
from vcdl.job import Job, load_job, save_job
from vcdl.job.schema import load_frozen_job
from vcdl.simulate.client_fleet import load_clients
from vcdl.wire.workunit import Normalisation, Workunit

_JOBS = (
    "name: a\nmodel: {builtin: small_cnn}\ndata: {dataset: digits}\n",
    "name: digits-2\npreset: paper\nseed: 7\nmodel:\n  builtin: {name: mlp, units: [32, 16], dropout: 0.1}\n"
    "data: {dataset: fashion-mnist, shards: 20, split: dirichlet, concentration: 0.5, validation: 0.1}\n"
    "stop: {epochs: 3, target_accuracy: 0.9, wall_time_s: 3600, patience: 2}\n",
    "name: a\nmodel: {builtin: mlp}\ndata: {npz: data.npz, task: regression}\n"
    "training: {optimizer: {name: adam, beta_1: 0.8}, learning_rate: {peak: 1e-3, warmup: 0.1}, batch_size: 8,\n"
    "  loss: mean_squared_error, local_epochs: 2}\nvalidate: {every: 5, samples: 100}\n",
    "name: b\nmodel: {builtin: {name: resnet_v2, depth: 11}}\ndata: {dataset: cifar10, shards: 50}\n"
    "update: {rule: vc_asgd, alpha: {from: 0.5, to: 0.95}}\n"
    "transport: {down: bfloat16, up: {name: int8, levels: 31}, compress: true}\ntrust: {kind: strangers, clip: 1.5}\n"
    "store: {url: 'redis://localhost:6379/0', consistency: eventual}\ngrid: {workers: 2, servers: 1, tries: 4}\n",
    "name: c\nmodel: {keras_json: model.json}\ndata: {dataset: digits, shards: 3}\n"
    "update: {rule: fedbuff, buffer: 4}\nstore: redis://h/1\npacing: epoch\ntrust: own\nretention: {uploads: all}\n"
    "boinc: {deadline_s: 3600}\n",
)
_WORDS = tuple(
    word.encode()
    for word in (
        "name", "model", "builtin", "data", "update", "rule", "store", "url", "transport", "trust", "null", "true",
        "~", "1e400", ".inf", "-1", "0x10", "1_000", "&a ", "*a", "!!python/object:os.system", "!!binary", "!!int ",
        "? ", "<<: ", "---\n", "...\n", "%YAML 1.1\n", "|\n", ">\n", "\t", "\r\n", "\u2028", "\ufeff", "\\ud800",
        '"\\ud800"', '"\\UFFFFFFFF"', "[", "{", "}", "[" * 500, "{a: " * 300, ": ", "- ", "#", "'", '"', "\x00", "é",
        "sqlite:///a", "mysql://u:p@h/d", "redis://:p@[::1]:99999/x", "https://", "../", "a" * 400, "vc_asgd", "int8",
    )
)  # fmt: skip


class JobFiles(Target):
    """Job files. What is taken is written as a run's own copy and read back to an equal job."""

    name = "job_files"
    refuses = (JobError,)
    words = _WORDS

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "data.npz").touch()
        (folder / "model.json").touch()

    def seeds(self) -> Sequence[bytes]:
        return [text.encode() for text in _JOBS]

    def mutate(self, dice: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
        return mutated_yaml(dice, data, others, self.words)

    def take(self, data: bytes) -> None:
        file, frozen = self.folder / "job.yaml", self.folder / "frozen.yaml"
        file.write_bytes(data)
        job = load_job(file)
        save_job(job, frozen)
        hold(load_frozen_job(frozen) == job, "the run's copy of a job is another job")
        self._check(job)

    def _check(self, job: Job) -> None:
        """What a run does with a job first must not fail."""
        json.dumps(job.to_plain_values(), allow_nan=False)
        hold(job.update.state.vectors >= 0, "a state of less than nothing")
        job.trusting("own").to_yaml()
        hold(job.subtasks > 0, "a job without a subtask")
        hold(job.validate_every >= 1 or job.validate_every == 0, "an interval below one")
        transport = job.transport.to_wire()
        training = job.training.to_wire(Normalisation())
        unit = Workunit(job.name, 1, 0, 0, 0, seed=1, training=training, transport=transport)
        hold(Workunit.from_json(unit.to_json()) == unit, "a workunit of this job is read as another one")


class FleetFiles(Target):
    """Files of cloud fleets."""

    name = "fleet_files"
    refuses = (JobError, FleetError)
    words = (*_WORDS, b"instances", b"types", b"regions", b"budget", b"scale", b"requirements", b"min", b"max", b"spot")

    def seeds(self) -> Sequence[bytes]:
        examples = Path(__file__).resolve().parents[2] / "examples" / "fleets"
        return [path.read_bytes() for path in sorted(examples.glob("*.yaml"))]

    def mutate(self, dice: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
        return mutated_yaml(dice, data, others, self.words)

    def take(self, data: bytes) -> None:
        file = self.folder / "fleet.yaml"
        file.write_bytes(data)
        load_fleet_settings(file)


class ClientFiles(Target):
    """Files of simulated clients."""

    name = "client_files"
    refuses = (JobError,)
    words = (*_WORDS, b"clients", b"slots", b"speed", b"hostile", b"lost", b"patience_s", b"core_sharing")

    def seeds(self) -> Sequence[bytes]:
        return [b"clients: 3\n", b"clients: 4\nslots: 2\nseed: 3\ncore_sharing: 0.5\n"]

    def mutate(self, dice: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
        return mutated_yaml(dice, data, others, self.words)

    def take(self, data: bytes) -> None:
        file = self.folder / "clients.yaml"
        file.write_bytes(data)
        fleet = load_clients(file)
        hold(fleet.clients > 0 and fleet.slots > 0, "a fleet without a client")


def mutated_yaml(dice: random.Random, data: bytes, others: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """Half of the time the text is changed, else the values, which are written as JSON: it is YAML, too."""
    if dice.random() < 0.5:
        return mutated(dice, data, others, words)
    try:
        values = yaml.load(data, Loader=yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader)
        return json.dumps(mutated_json(dice, values)).encode()
    except (yaml.YAMLError, ValueError, TypeError, RecursionError, OverflowError):
        return mutated(dice, data, others, words)
