"""`python -m vcdl.profile.worker`: the worker of differential runs, which keeps its last samples in memory.

It trains on them again when a subtask's shard file is empty, so that runs without reading can be measured.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from vcdl.client.inputs import Shard, ShardReader, read_shard
from vcdl.client.trainer import TrainerCache
from vcdl.client.worker import main
from vcdl.wire.workunit import SHARD_FILE, Normalisation


class KeptShard:
    """Reads shards; for an empty file it returns the shard of the call before, without reading."""

    def __init__(self, read: ShardReader = read_shard) -> None:
        self._read = read
        self._kept: Shard | None = None

    def __call__(
        self,
        folder: Path,
        normalisation: Normalisation,
        input_shapes: Mapping[str, tuple[int | None, ...]],
        outputs: Sequence[str] = (),
    ) -> Shard:
        # An empty file is no shard, so it can stand for "the samples that are in memory".
        if self._kept is None or (folder / SHARD_FILE).stat().st_size:
            self._kept = self._read(folder, normalisation, input_shapes, outputs)
        return self._kept


if __name__ == "__main__":
    main(TrainerCache(), KeptShard())
