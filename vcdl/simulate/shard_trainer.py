"""`python -m vcdl.simulate.shard_trainer`: a worker that trains a local epoch in one call, without pauses."""

from vcdl.client.trainer import Trainer, TrainerCache
from vcdl.client.worker import main
from vcdl.wire.layout import Vector
from vcdl.wire.workunit import Training


class ShardTrainer(Trainer):
    """A trainer that trains any number of batches in one call, without stopping in between for a supervisor."""

    @property
    def at_once(self) -> int:
        # More batches than any shard has: in a simulation no supervisor has requests.
        return 1_000_000


class ShardTrainers(TrainerCache):
    """Keeps the ShardTrainer of the newest job."""

    def make(self, model_json: str, training: Training, frozen: Vector | None = None) -> Trainer:
        return ShardTrainer(model_json, training, frozen)


if __name__ == "__main__":
    main(ShardTrainers())
