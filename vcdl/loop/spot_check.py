"""The check for training's effect: whether an upload knows its own shard better than the weights that it started from.

Honest training lowers the loss of what it trained on practically always: of 520 honest uploads (images, alike and
unlike shards, early and late) all did, the least by 2 % of the loss. A client that uploads what it downloaded, or that
with noise, has done nothing, and gets no credit.

The check costs two passes over some samples, so it is made for a share of the uploads, drawn with a secret of the run,
and for the first ones of every host.
"""

import logging
from pathlib import Path

import numpy as np

from vcdl.checks import Refusal, Refused
from vcdl.checks.draw import is_drawn
from vcdl.data.samples import Samples, read_samples
from vcdl.errors import DataError, ModelError, WeightsFileError
from vcdl.loop.loss_meter import LossMeter
from vcdl.run.run import Run
from vcdl.wire.weights import read_weights
from vcdl.wire.workunit import WorkunitName

FIRST_UPLOADS = 3
"""Uploads of a new host that are all checked."""
_SAMPLES = 256
"""With 128, 2 of 100 honest uploads showed no effect; with 256 none did, and the least was 0.02."""
_LEAST = 2e-4
"""The least share of the loss that training takes away; the median of honest uploads is 4 to 60 %."""
_REFUSED_AT_MOST = 2
"""Attempts at a subtask that the check may refuse: a learning rate of almost zero has no effect either."""
_log = logging.getLogger(__name__)


class SpotCheck:
    """Checks drawn uploads of one run; the model is built for the first one."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._share = run.job.trust.spot_checks if run.job.is_for_strangers else 0.0
        self._meter: LossMeter | None = None
        self._base = -1, np.empty(0, np.float32)
        """The last base version and its weights."""

    @property
    def draws(self) -> bool:
        """Whether any upload of this run may be drawn."""
        return self._share > 0

    def is_drawn(self, workunit: str, host_applied: int) -> bool:
        """Whether an upload is to be checked; `host_applied`: what its host has brought so far."""
        if self._share == 0 or WorkunitName.parse(workunit).attempt >= _REFUSED_AT_MOST:
            return False
        is_first = host_applied < FIRST_UPLOADS
        return is_first or is_drawn(self._run.draw_secret, "spot", workunit, self._share)

    def refused(self, upload: Path, workunit: str, base_version: int) -> Refused | None:
        """Why an upload has no effect of training; None: it has, or nobody can say.

        `base_version`: the version that it started from. Raises FileUnavailable.
        """
        name = WorkunitName.parse(workunit)
        try:
            samples = self._samples(workunit, name.shard)
            before, after = self._losses(upload, base_version, samples)
        except (Refused, WeightsFileError):
            return None  # other checks give it its name
        except (ImportError, MemoryError, ModelError, DataError) as error:
            _log.warning("%s: no upload is checked for training's effect (%s)", self._run.name, error)
            self._share = 0.0
            return None
        if not np.isfinite(before) or before - after > _LEAST * abs(before):
            return None
        return Refused(
            Refusal.NO_TRAINING_EFFECT,
            f"loss {after:.6g} on {len(samples.x)} samples of its own shard, {before:.6g} before its training",
        )

    def _losses(self, upload: Path, base_version: int, samples: Samples) -> tuple[float, float]:
        """The losses before and after the upload's training."""
        if self._meter is None:
            self._meter = LossMeter.of(self._run)
        base = self._run.folder.snapshot(base_version)
        after = self._meter.loss(self._meter.towards(upload, base, 1.0), samples)
        if self._base[0] != base_version:
            self._base = base_version, read_weights(base, self._run.layout.size)[0]
        return self._meter.loss(self._base[1], samples), after

    def _samples(self, workunit: str, shard: int) -> Samples:
        """Some samples of a shard, others for each workunit. Raises DataError, FileUnavailable."""
        samples = read_samples(self._run.folder.shard(shard), self._run.prepared.normalisation)
        seed = [self._run.job.seed, *workunit.encode()]
        return samples.taken(np.sort(np.random.default_rng(seed).permutation(len(samples.x))[:_SAMPLES]))
