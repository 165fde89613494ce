"""Check uploads, the cheapest checks first; no memory is allocated before the file's size has been verified."""

import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

from vcdl.checks.claims import LARGEST_LOSS, LONGEST_S
from vcdl.checks.norm import NormMeter, trained_norm
from vcdl.checks.upload_reader import open_upload
from vcdl.codecs.base import CHUNK
from vcdl.codecs.choose import up_encoding
from vcdl.codecs.encoding import Encoding
from vcdl.errors import WeightsFileError, WorkunitError
from vcdl.errors.refusal import Refusal, Refused
from vcdl.wire.layout import Layout, Vector
from vcdl.wire.workunit import PLAIN, Transport, UpdateHeader, WorkunitName

_NORM_FACTOR = 10.0
"""Highest norm of an accepted update, as a multiple of the median of recent ones: honest training changes norms by
percents, so a factor of ten refuses only garbage."""
_NORMS_KEPT = 50
"""Norms of recent updates that are remembered: enough for a stable median, few enough to follow training."""
_ROUNDING = 1e-9
"""Relative tolerance between the claimed fraction and samples / all, since both are rounded."""


def as_given(version: int, given: int, _: str) -> bool:
    """Return whether a client started from the version that its workunit names; the checksum is ignored."""
    return version == given


@dataclass
class UploadCheck:
    """Checks the uploads of one job: header, form and norm.

    The limit of norms follows the accepted uploads, so call `accept` for each upload that was applied.
    """

    job: str
    layout: Layout
    shard_samples: tuple[int, ...]
    """Samples in each shard, by number."""
    local_epochs: int
    initial_norm: float
    """‖W‖₂ of version 0, which norms are compared with until uploads have been accepted."""
    transport: Transport = PLAIN
    is_base: Callable[[int, int, str], bool] = as_given
    """Returns whether a client may have started from some weights, given their version, the workunit's version, and the
    checksum that the client reports."""
    _norms: deque[float] = field(default_factory=lambda: deque(maxlen=_NORMS_KEPT))

    @property
    def up(self) -> Encoding:
        """The encoding of uploads."""
        return up_encoding(self.transport, self.layout)

    def read_header(self, path: Path, workunit: str) -> UpdateHeader:
        """Check the header and the form of an upload for `workunit`, without its weights, and return the header.

        Raises:
            Refused: The header is wrong.
            FileUnavailable: The file cannot be read on this machine.
        """
        try:
            header = UpdateHeader.from_json(self._header_text(path))
        except WorkunitError as error:
            raise Refused(Refusal.BAD_HEADER, str(error)) from error
        except WeightsFileError as error:
            raise Refused(Refusal.UNREADABLE, str(error)) from error
        self._check_header(header, WorkunitName.parse(workunit), workunit)
        return header

    def examine(self, path: Path, workunit: str, base: Path | None = None) -> UpdateHeader:
        """Check an upload completely, add its norm to those of accepted uploads, and return its header.

        Args:
            path: The upload.
            workunit: Name of the workunit that it must belong to.
            base: The snapshot that it started from, for uploads that are differences.

        Raises:
            Refused: The upload is wrong.
            FileUnavailable: A file cannot be read on this machine.
        """
        header = self.read_header(path, workunit)
        meter, room = NormMeter(self.layout), np.empty(min(CHUNK, self.layout.size), np.float32)
        with open_upload(path, self.up, base if self.up.is_difference else None) as upload:
            for begin in range(0, self.layout.size, CHUNK):
                block = room[: self.layout.size - begin]
                upload.read(begin, block)
                meter.add(block, begin)
        self.judge(meter.norm)
        self.accept(meter.norm)
        return header

    def judge(self, norm: float) -> None:
        """Check the norm of an upload, as a NormMeter computes it. Raises Refused if no honest upload has it."""
        if not np.isfinite(norm):
            raise Refused(Refusal.NOT_FINITE, "NaN, infinity or numbers near the end of float32 among the weights")
        # Weights of 1 on average are never suspicious: a model may start at zero.
        usual = max(median(self._norms) if self._norms else self.initial_norm, self.layout.model.size**0.5)
        if norm > _NORM_FACTOR * usual:
            raise Refused(
                Refusal.NORM_TOO_LARGE,
                f"norm {norm:.4g}, updates lately had {usual:.4g}: hostile, or the learning rate is far too high",
            )

    def accept(self, norm: float) -> None:
        """Remember the norm of an applied upload, with which the norms of later uploads are compared."""
        self._norms.append(norm)

    def expect(self, vector: Vector) -> None:
        """Remember the norm of the shared weights, shape (n,), when a job is resumed and no upload was accepted yet."""
        self.accept(trained_norm(vector, self.layout))

    def _header_text(self, path: Path) -> str:
        """Return the header of an upload, even if it has another encoding than the job's. Raises WeightsFileError.

        So an upload with a wrong codec is refused for the codec and not as unreadable.
        """
        try:
            return self.up.read_header(path)
        except WeightsFileError as error:
            for other in (PLAIN, Transport(compress=True)):  # the latter's files are the largest
                with suppress(WeightsFileError):
                    return up_encoding(other, self.layout).read_header(path)
            raise error

    def _check_header(self, header: UpdateHeader, name: WorkunitName, workunit: str) -> None:
        """Compare a header with the workunit and the job. Raises Refused."""
        if header.job != self.job:
            raise Refused(Refusal.WRONG_JOB, f"made for the job {header.job!r}, this one is {self.job!r}")
        if header.workunit != workunit:
            raise Refused(Refusal.WRONG_WORKUNIT, f"made for {header.workunit!r}, uploaded for {workunit!r}")
        base, given = header.base_version, name.base_version
        if not self.is_base(base, given, header.base_checksum):
            why = f"not {given}, and {base} is not offered" if base != given else "whose weights are different now"
            raise Refused(Refusal.WRONG_BASE, f"starts from version {base}, {why}")
        if header.layout != self.layout.fingerprint:
            raise Refused(Refusal.WRONG_LAYOUT, f"layout {header.layout!r}, the model has {self.layout.fingerprint!r}")
        if header.codec != self.up.label:
            raise Refused(Refusal.WRONG_CODEC, f"its weights travel as {header.codec!r}, not as {self.up.label!r}")
        # The shard's number comes from the workunit's name, and this job may have no such shard.
        most = self.shard_samples[name.shard] * self.local_epochs if name.shard < len(self.shard_samples) else 0
        if not 0 < header.samples <= most:
            raise Refused(Refusal.BAD_COUNTERS, f"{header.samples} samples, between 1 and {most} are possible")
        # Rules weigh an upload by its fraction, and figures count its samples, so the two must agree.
        if header.fraction > 1 or not math.isclose(header.fraction, header.samples / most, rel_tol=_ROUNDING):
            raise Refused(
                Refusal.BAD_COUNTERS,
                f"fraction {header.fraction} does not match {header.samples} of {most} samples",
            )
        if not 0 <= header.train_s <= LONGEST_S or abs(header.loss) > LARGEST_LOSS:
            raise Refused(Refusal.BAD_COUNTERS, f"training time {header.train_s} s, loss {header.loss}: impossible")
