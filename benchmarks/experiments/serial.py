"""The serial control: serial training through the same data pipeline, so that only the distribution differs.

One client trains all shards of every epoch in the coordinator's order, one subtask at a time. Each upload replaces the
shared weights, and the client keeps its optimizer's state: together that is ordinary training of one model.
"""

from benchmarks.experiments.hostile_fleet import HostileFleet
from vcdl.client.trainer import Trainer, TrainerCache, TrainerState
from vcdl.job import Job
from vcdl.job.schema import PacingSettings
from vcdl.job.transport import TransportSettings
from vcdl.job.trust import TrustSettings
from vcdl.job.update import RULES
from vcdl.simulate.shard_trainer import ShardTrainer
from vcdl.wire.layout import Vector
from vcdl.wire.workunit import Training


def alone(fleet: HostileFleet) -> HostileFleet:
    """The clock of the serial control: one reliable client of speed 1 that trains subtask after subtask."""
    return HostileFleet(seed=fleet.seed, clients=1, slots=1, subtask_s=fleet.subtask_s, jitter=0.0)


def serial_job(job: Job) -> Job:
    """The job as serial training: an upload replaces the shared weights, and the next subtask starts from them."""
    settings = {
        "training": job.training.model_copy(
            update={"share_optimizer_state": "none", "target_s": None}  # it never leaves the client
        ),
        "update": RULES["vc_asgd"].model_validate({"alpha": 0.0}),
        "pacing": PacingSettings(kind="rolling"),
        "transport": TransportSettings(),
        "trust": TrustSettings(kind="own"),
    }
    return job.model_copy(update=settings)


class OneTrainer(TrainerCache):
    """One model and one optimizer for all subtasks of one run."""

    def make(self, model_json: str, training: Training, frozen: Vector | None = None) -> Trainer:
        return _CarryingTrainer(model_json, training, frozen)


class _CarryingTrainer(ShardTrainer):
    """A trainer that continues with the optimizer's state of the previous subtask."""

    _carried: TrainerState | None = None

    def begin(self, weights: Vector, seed: int, learning_rate: float, steps: int) -> None:
        super().begin(weights, seed, learning_rate, steps)
        if self._carried is not None:
            begun = self.state()
            self.restore(TrainerState(begun.weights, self._carried.optimizer, begun.seeds))
            self._optimizer.learning_rate = learning_rate

    def finish(self) -> Vector:
        self._carried = self.state()
        return super().finish()
