"""Trains a whole local epoch in one call where the backend can: nothing can pause or watch the training meanwhile.

A simulation does neither. `python -m vcdl.simulate.shard_trainer` is a worker like vcdl.client.worker that trains in
this way.
"""

from vcdl.client.trainer import Trainer, TrainerCache
from vcdl.client.worker import main
from vcdl.wire.weights import Vector
from vcdl.wire.workunit import Training


class ShardTrainer(Trainer):
    """A trainer whose calls may take any time."""

    @property
    def at_once(self) -> int:
        return 1_000_000


class ShardTrainers(TrainerCache):
    """Keeps the ShardTrainer of the newest job."""

    def make(self, model_json: str, training: Training, frozen: Vector | None = None) -> Trainer:
        return ShardTrainer(model_json, training, frozen)


if __name__ == "__main__":
    main(ShardTrainers())
