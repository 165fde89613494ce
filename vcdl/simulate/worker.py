"""`python -m vcdl.simulate.worker`: a worker like vcdl.client.worker that trains shard by shard, for simulated runs only."""

from vcdl.client.worker import main
from vcdl.simulate.shard_trainer import ShardTrainers

if __name__ == "__main__":
    main(ShardTrainers())
