"""The checks in the order they are made: cheap ones first, and nothing is allocated before the file has proved its size."""

from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

from vcdl.checks.norm import trained_norm
from vcdl.checks.refusal import Refusal, Refused
from vcdl.codecs.choose import up_encoding
from vcdl.codecs.encoding import Encoding
from vcdl.errors import WeightsFileError, WorkunitError
from vcdl.weights import Layout, Vector, read_weights
from vcdl.workunit import PLAIN, Transport, UpdateHeader, WorkunitName

_NORM_FACTOR = 10.0
"""An accepted update may be this many times as long as the median of the last ones; training moves norms by per cents."""
_NORMS_KEPT = 50


@dataclass
class UploadCheck:
    """Decides about the uploads of one job."""

    job: str
    layout: Layout
    shard_samples: tuple[int, ...]
    """Samples in each shard, by number."""
    local_epochs: int
    initial_norm: float
    """‖W‖₂ of version 0: the measure until updates have been accepted."""
    transport: Transport = PLAIN
    _norms: deque[float] = field(default_factory=lambda: deque(maxlen=_NORMS_KEPT))

    @property
    def up(self) -> Encoding:
        """How uploads travel."""
        return up_encoding(self.transport, self.layout)

    def read_header(self, path: Path, workunit: str) -> UpdateHeader:
        """All that can be checked of an upload for `workunit` without reading its weights. Raises Refused, StoreUnavailable."""
        try:
            header = UpdateHeader.from_json(self._header_text(path))
        except WorkunitError as error:
            raise Refused(Refusal.BAD_HEADER, str(error)) from error
        except WeightsFileError as error:
            raise Refused(Refusal.UNREADABLE, str(error)) from error
        self._check_header(header, WorkunitName.parse(workunit), workunit)
        return header

    def read(self, path: Path, workunit: str, base: Path | None = None) -> tuple[UpdateHeader, Vector]:
        """Read an upload for `workunit` and check all of it; returns header and weights, shape (n,). Raises Refused, and StoreUnavailable
        when this machine cannot read a file that is there: that is nobody's fault.

        `base`: the snapshot of what the client started from, where uploads are differences to it.
        """
        header = self.read_header(path, workunit)
        started_from = self._base(base)
        try:
            vector, _ = self.up.read_upload(path, started_from)
        except WeightsFileError as error:
            raise Refused(Refusal.UNREADABLE, str(error)) from error
        norm = trained_norm(vector, self.layout)
        self.judge(norm)
        self.accept(norm)
        return header, vector

    def judge(self, norm: float) -> None:
        """Whether an upload may have this norm (of a NormMeter). Raises Refused."""
        if not np.isfinite(norm):
            raise Refused(Refusal.NOT_FINITE, "NaN, infinity or numbers near the end of float32 among the weights")
        # Weights of 1 on average are never suspicious: a model may begin at zero.
        usual = max(median(self._norms) if self._norms else self.initial_norm, self.layout.model.size**0.5)
        if norm > _NORM_FACTOR * usual:
            raise Refused(
                Refusal.NORM_TOO_LARGE,
                f"norm {norm:.4g}, updates lately had {usual:.4g}: hostile, or the learning rate is far too high",
            )

    def accept(self, norm: float) -> None:
        """An upload of this norm was folded in: it is the measure of later ones."""
        self._norms.append(norm)

    def expect(self, vector: Vector) -> None:
        """Take shared weights, shape (n,), as the measure of norms: those a resumed job goes on from."""
        self.accept(trained_norm(vector, self.layout))

    def _header_text(self, path: Path) -> str:
        """Also of an upload that travels in another way, so that what is wrong with it gets its name. Raises WeightsFileError."""
        try:
            return self.up.read_header(path)
        except WeightsFileError as error:
            for other in (PLAIN, Transport(compress=True)):  # no file is larger than the latter's
                with suppress(WeightsFileError):
                    return up_encoding(other, self.layout).read_header(path)
            raise error

    def _base(self, base: Path | None) -> Vector:
        if not self.up.is_difference:
            return np.zeros(0, np.float32)
        if base is None:
            raise ValueError("a difference without the weights that it belongs to: this is a mistake in vcdl")
        try:
            return read_weights(base, self.layout.size)[0]
        except WeightsFileError as error:
            raise Refused(
                Refusal.WRONG_BASE, f"the weights that it started from are not kept any more: {error}"
            ) from error

    def _check_header(self, header: UpdateHeader, name: WorkunitName, workunit: str) -> None:
        if header.job != self.job:
            raise Refused(Refusal.WRONG_JOB, f"made for the job {header.job!r}, this one is {self.job!r}")
        if header.workunit != workunit:
            raise Refused(Refusal.WRONG_WORKUNIT, f"made for {header.workunit!r}, uploaded for {workunit!r}")
        if header.base_version != name.base_version:
            raise Refused(Refusal.WRONG_BASE, f"starts from version {header.base_version}, not {name.base_version}")
        if header.layout != self.layout.fingerprint:
            raise Refused(Refusal.WRONG_LAYOUT, f"layout {header.layout!r}, the model has {self.layout.fingerprint!r}")
        if header.codec != self.up.label:
            raise Refused(Refusal.WRONG_CODEC, f"its weights travel as {header.codec!r}, not as {self.up.label!r}")
        most = self.shard_samples[name.shard] * self.local_epochs if name.shard < len(self.shard_samples) else 0
        if not 0 < header.samples <= most:
            raise Refused(Refusal.BAD_COUNTERS, f"{header.samples} samples, between 1 and {most} are possible")
        if not 0 < header.fraction <= 1 or header.train_s < 0:
            raise Refused(Refusal.BAD_COUNTERS, f"fraction {header.fraction}, training time {header.train_s} s")
