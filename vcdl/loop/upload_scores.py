"""What applied uploads are worth on held-out data; the weights of hosts follow from it (vcdl.journal.hosts).

An upload's gain is the loss at the weights B that its client started from, less the loss at B + (C − B)/10. The step is
so small that its direction decides, and it is the same whatever the rule made of the upload.

The evaluator has the model and the data. It scores while no version waits to be evaluated, the newest upload first. A
backlog is dropped, and an upload or base that is gone is not scored: neither is an error.
"""

import math
from dataclasses import replace

import numpy as np

from vcdl.checks import Refused
from vcdl.checks.draw import is_drawn
from vcdl.data.samples import Samples
from vcdl.errors import WeightsFileError
from vcdl.journal.events import Recorded, StopDecided, UpdateApplied, UploadScored
from vcdl.journal.hosts import HostHistory
from vcdl.journal.kept_state import KeptState
from vcdl.loop.loss_meter import LossMeter
from vcdl.run.run import Run
from vcdl.wire.weights import read_weights

_SAMPLES = 256
_STEP = 0.1
_SHARE_OF_PROVEN = 1 / 8
"""Share of the uploads that is scored of hosts that have proved themselves."""
_BACKLOG = 32
_AT_ONCE = 4
"""Uploads that are scored between two looks for versions to evaluate."""
_WORST = -1e6
"""The gain of an upload whose loss is not finite."""


class UploadScores:
    """Scores the uploads of one run."""

    def __init__(self, run: Run, meter: LossMeter, held_out: Samples, hosts: KeptState[HostHistory]) -> None:
        """`held_out`: samples, of which some are taken. `hosts`: those of the job; what they brought before is not
        scored any more.
        """
        count = len(held_out.x)
        some = np.sort(np.random.default_rng([run.job.seed, count, _SAMPLES]).permutation(count)[:_SAMPLES])
        self._samples = held_out.taken(some)
        self._run = run
        self._meter = meter
        self._kept_hosts = hosts
        self._hosts = hosts.state
        self._waiting: dict[str, UpdateApplied] = {}
        """Workunit → its upload, which is to be scored; the newest is last."""
        self._base = -1, math.nan
        """The last base version, and the loss there."""

    @property
    def last_id(self) -> int:
        """The last event that was followed."""
        return self._kept_hosts.last_id

    def follow(self, recorded: Recorded) -> None:
        """Take in the journal's next event; an older one changes nothing."""
        if recorded.id <= self.last_id:
            return
        match event := recorded.event:
            case UpdateApplied():
                host = event.host or self._hosts.sender(event.workunit)
                if host and self._is_wanted(event.workunit, host):
                    self._waiting[event.workunit] = replace(event, host=host)
                    if len(self._waiting) > _BACKLOG:
                        del self._waiting[next(iter(self._waiting))]
            case UploadScored():
                self._waiting.pop(event.workunit, None)
            case StopDecided():
                self._waiting.clear()
            case _:
                pass
        self._kept_hosts.follow(recorded)

    def next_scores(self) -> list[UploadScored]:
        """Score some of the uploads that wait. Raises FileUnavailable."""
        scored: list[UploadScored] = []
        while self._waiting and len(scored) < _AT_ONCE:
            workunit, update = self._waiting.popitem()
            gain = self._gain(update)
            if gain is not None:
                scored.append(UploadScored(workunit, update.host, gain))
        return scored

    def _is_wanted(self, workunit: str, host: str) -> bool:
        if not self._hosts.is_proven(host):
            return True
        return is_drawn(self._run.draw_secret, "score", workunit, _SHARE_OF_PROVEN)

    def _gain(self, update: UpdateApplied) -> float | None:
        """None: its files are gone."""
        folder = self._run.folder
        base = folder.snapshot(update.base_version)
        try:
            before = self._loss_at(update.base_version)
            towards = self._meter.towards(folder.kept_upload(update.version, update.workunit), base, _STEP)
        except (Refused, WeightsFileError):
            return None
        gain = before - self._meter.loss(towards, self._samples)
        return gain if math.isfinite(gain) else _WORST

    def _loss_at(self, version: int) -> float:
        """Raises WeightsFileError, FileUnavailable."""
        if self._base[0] != version:
            vector, _ = read_weights(self._run.folder.snapshot(version), self._run.layout.size)
            self._base = version, self._meter.loss(vector, self._samples)
        return self._base[1]
