"""Secret re-execution: the server retrains sampled uploads from their own weights, shard and seed, and compares.

Honest clients differ by rounding, some millionths of a step (vcdl.trust.agreement). Whatever else a client uploads is
not the result of its subtask. So a host that lied is distinguished from one with strange data, and only the liar is
punished.

The server retrains uploads that look suspicious, the first upload of each host, and the next upload of a host that was
refused. Of the others it retrains as many as the job's budget allows (`trust > verify`), drawn so that no client can
predict which (vcdl.trust.candidates). An upload that agrees vouches for everything that its host had uploaded when it
was drawn.

The evaluator's process does this while no evaluation waits. An upload is skipped if it, or the weights it started from,
no longer exist. It is also skipped if the model draws random numbers and the client has another backend: its host is
then refused, and its updates are dropped, once two other hosts are verified.

Before a job ends, its last uploads are also sampled, within a limit: a liar may have waited for them. Subtasks at which
hosts keep failing are trained here in turn with sampled uploads (vcdl.trust.trials).
"""

import logging
import time
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from vcdl.codecs.choose import up_encoding
from vcdl.errors import ModelError, RunFolderError, Unavailable, VcdlError, WeightsFileError, WorkunitError
from vcdl.errors.refusal import Refused
from vcdl.journal.events import (
    Event,
    Recorded,
    UpdateApplied,
    UploadVerified,
    VerificationEnded,
    WorkunitCreated,
)
from vcdl.journal.history import JobHistory
from vcdl.journal.journal import Journal
from vcdl.journal.kept_state import KeptState
from vcdl.run.run import Run
from vcdl.run.staging import Staged, stage
from vcdl.trust.agreement import TOLERANCE, disagreement
from vcdl.trust.candidates import Candidates, is_strange
from vcdl.trust.hosts import HostHistory
from vcdl.trust.retraining import Retraining
from vcdl.trust.trials import Trials
from vcdl.wire.workunit import UpdateHeader, WorkunitName

_SCATTER = 4.0
"""Longest distance of an honest upload, as a multiple of that between two trainings here whose rates differ slightly. A
larger value lets a larger lie pass; a smaller one suspects hosts whose processor rounds differently."""
_OTHER_RATE = 1.0001  # a fourth digit of the rate moves a training about as far as rounding on another processor
_FARTHEST = 1e9
"""Distance that stands for infinity, because JSON cannot contain that."""
_AT_THE_END, _TIME_AT_THE_END = 3, 0.1
"""Uploads that are drawn at least before the job ends, and the part of the job's time during which more are drawn. No
client works meanwhile. Three are enough to find a liar among ten hosts that waited for the last tenth of a short job.
"""
_log = logging.getLogger(__name__)


@dataclass
class _Check:
    """An upload that is being retrained."""

    update: UpdateApplied
    staged: Staged
    up_to: int
    """The newest version when the upload was drawn. If it agrees, the host's uploads up to here count as verified."""
    train_s: float = 0.0
    """Seconds of training so far."""


class Verification:
    """Retrains uploads of one run to verify them, and subtasks that failed too often (`Trials`).

    Pass each journal event to `follow`, call `next_events` repeatedly, and record the events that it returns. All that
    must survive a kill is in the journal; a retraining that was interrupted starts again.
    """

    def __init__(
        self,
        run: Run,
        journal: Journal,
        history: JobHistory,
        hosts: KeptState[HostHistory],
        retraining: Retraining,
        *,
        draws: bool,
    ) -> None:
        """Prepare the verification of a run.

        Args:
            run: The run.
            journal: Its journal.
            history: The job's history, which the caller keeps up to date.
            hosts: The history of the job's hosts. Uploads whose events it already contains are never drawn.
            retraining: Trains the drawn uploads; its slots are removed here.
            draws: Whether the model draws random numbers, which differ on another backend.
        """
        import keras

        self._run = run
        self._journal = journal
        self._history = history
        self._kept_hosts = hosts
        self._retraining = retraining
        self._draws = draws
        self._backend = keras.backend.backend()
        self._share = run.job.trust.verify
        self._candidates = Candidates(run.draw_secret, run.job.trust.verify, run.job.monitor)
        self._check: _Check | None = None
        self._trials = Trials(run, history, retraining)
        self._has_tried = False
        """Whether the last turn went to a failed subtask (`Trials`), so that the next one goes to an upload."""
        self._incomparable: dict[str, UploadVerified] = {}
        """Host whose backend differs from the server's → the event to record for its upload."""
        self._closing: tuple[int, float] | None = None
        """The number of verified uploads when the last epoch closed, and the seconds spent on them; None before."""
        self._ended = -1
        """The version for which VerificationEnded was recorded, or -1."""
        self._up = up_encoding(run.transport, run.layout)
        retraining.clear()

    @property
    def _hosts(self) -> HostHistory:
        return self._kept_hosts.state

    @property
    def last_id(self) -> int:
        """The id of the last event that was applied."""
        return self._kept_hosts.last_id

    def follow(self, recorded: Recorded) -> None:
        """Apply the next journal event; an event that was already applied is skipped."""
        if recorded.id <= self.last_id:
            return
        event = recorded.event
        if isinstance(event, UpdateApplied) and (host := event.host or self._hosts.sender(event.workunit)):
            self._compare_backends(event, host)
            self._candidates.add(structs.replace(event, host=host))
        self._candidates.follow(event)
        self._trials.follow(event)
        self._kept_hosts.follow(recorded)

    def _compare_backends(self, event: UpdateApplied, host: str) -> None:
        """Prepare the event that marks a host as incomparable, if the model draws random numbers on another backend."""
        if self._draws and event.backend not in ("", self._backend) and not self._hosts.is_incomparable(host):
            _log.info("%s: %s of %s draws other random numbers", self._run.name, event.backend, host)
            of = event.workunit, host, event.version
            self._incomparable[host] = UploadVerified(*of, 0.0, agrees=True, train_s=0.0, is_comparable=False)

    def next_events(self) -> list[Event]:
        """Return the events to record that are due. If none is, train for a time slice, and return what follows.

        Raises:
            Unavailable: A resource is missing now; call again.
            JournalError: The journal cannot be read.
        """
        # Convict before any training: each further upload of a liar that is folded must be removed, too.
        if convicted := self._hosts.to_convict:
            return list(convicted)
        if self._incomparable:
            told, self._incomparable = self._incomparable, {}
            return list(told.values())
        if self._check is None and self._has_tried and not self._trials.is_busy:
            # Alternate: garbage under new names must not use up all the time.
            self._check = self._draw_check()
        if self._check is None:
            tried = self._trials.next_event()
            if tried is not None or self._trials.is_busy:
                self._has_tried = True
                return [] if tried is None else [tried]
        self._has_tried = False
        self._check = check = self._check or self._draw_check()
        if check is None:
            return self._end_of_verification()
        try:
            verified = self._verify(check)
        except Unavailable:
            raise
        except (ImportError, MemoryError, ModelError) as error:
            _log.warning("%s: no upload can be retrained (%s)", self._run.name, error)
            # This process cannot train at all, for instance without memory. Trying again with every upload would fail
            # as often.
            self._share, self._check = 0.0, None
            return []
        except (VcdlError, Refused) as error:
            _log.info("%s: %s is not retrained (%s)", self._run.name, check.update.workunit, error)
            self._end(check)
            return []
        if verified is None:
            return []
        self._end(check)
        return [verified]

    @property
    def is_busy(self) -> bool:
        """Whether an upload or a failed subtask is partly trained, so that `next_events` should be called soon."""
        return self._check is not None or self._trials.is_busy

    def _end(self, check: _Check) -> None:
        """Forget an upload that was retrained, or that cannot be, and remove its slots."""
        self._candidates.retrained(check.update)
        self._retraining.clear()
        self._check = None

    def _end_of_verification(self) -> list[Event]:
        """Return VerificationEnded for the newest version if all epochs are closed, once per version; else nothing.

        Call it only if no upload is left to draw. The job waits for this event before it ends.
        """
        version = self._history.version
        if not self._is_closing or version <= self._ended:
            return []
        self._ended = version
        return [VerificationEnded(version)]

    @property
    def _is_closing(self) -> bool:
        """Whether all epochs of the job are closed."""
        return len(self._history.closed) >= self._run.job.stop.epochs

    @property
    def _draws_at_the_end(self) -> bool:
        """Whether the job still waits for the verification of its last uploads."""
        if not self._is_closing:
            return False
        hosts = self._hosts
        self._closing = self._closing or (hosts.verified, hosts.verified_s)
        verified, verified_s = self._closing
        is_early = hosts.verified_s - verified_s < _TIME_AT_THE_END * self._history.wall_s
        return hosts.verified - verified < _AT_THE_END or is_early

    def _draw_check(self) -> _Check | None:
        """Draw the next upload and prepare its retraining, skipping uploads whose files are gone; None without one.

        Raises:
            Unavailable: A resource is missing now.
        """
        while self._share > 0 and (update := self._next()) is not None:
            try:
                return self._check_of(update)
            except Unavailable:
                raise
            except (Refused, WeightsFileError, WorkunitError, RunFolderError):
                self._candidates.skip(update)
        return None

    def _next(self) -> UpdateApplied | None:
        """Return the next upload to retrain, or None if none is due."""
        may_draw = self._candidates.has_budget(self._hosts) or self._draws_at_the_end
        return self._candidates.next(self._hosts, may_draw=may_draw, is_closing=self._is_closing)

    def _check_of(self, update: UpdateApplied) -> _Check:
        """Prepare the retraining of an upload.

        Raises:
            WeightsFileError, WorkunitError, RunFolderError, Refused: Its files are gone or damaged.
        """
        folder = self._run.folder
        if not folder.snapshot(update.base_version).exists():
            raise WeightsFileError(f"version {update.base_version} is no longer kept")
        header = UpdateHeader.from_json(self._up.read_header(folder.kept_upload(update.version, update.workunit)))
        if self._draws and header.backend != self._backend:
            raise WorkunitError(f"{header.backend} draws other random numbers than {self._backend}")
        created = self._journal.find(WorkunitCreated.key_of(update.workunit))
        # Prefer the event of creation: it has `begins`, without which a subtask that ends by time would train on other
        # samples.
        if created and isinstance(created.event, WorkunitCreated):
            rate, begins = created.event.rate, created.event.begins
        else:
            rate, begins = update.rate, None
        name = replace(WorkunitName.parse(update.workunit), base_version=update.base_version)
        newest = self._journal.newest_update()
        return _Check(
            update, stage(self._run, name, rate, begins), update.version if newest is None else newest.version
        )

    def _verify(self, check: _Check) -> UploadVerified | None:
        """Retrain an upload for a time slice; return the verdict, or None if more slices are needed.

        An upload that differs by more than rounding is compared with a second retraining at a slightly different
        learning rate, which shows how far the training amplifies rounding.

        Raises:
            VcdlError: The upload cannot be retrained.
            Refused: The upload cannot be read.
        """
        update, folder = check.update, self._run.folder
        upload, base = folder.kept_upload(update.version, update.workunit), folder.snapshot(update.base_version)
        ours = self._retrain("again", check, check.staged)
        if ours is None:
            return None
        apart, scatter = disagreement(upload, ours, base, self._up), 0.0
        if not apart.is_rounding:  # a difference in the fourth digit of the rate does as much: no ground for suspicion
            scattered = self._retrain("scattered", check, _at_other_rate(check.staged))
            if scattered is None:
                return None
            scatter = disagreement(scattered, ours, base, self._up).most
        agrees = apart.most <= max(TOLERANCE, _SCATTER * scatter)
        # Written so that NaN becomes _FARTHEST, too: every comparison with NaN is false.
        most = apart.most if apart.most < _FARTHEST else _FARTHEST
        of = update.workunit, update.host, check.up_to
        return UploadVerified(*of, most, agrees, check.train_s, was_strange=is_strange(update))

    def _retrain(self, slot: str, check: _Check, what: Staged) -> Path | None:
        """Train a time slice in a slot, and add its seconds to `check`; return the update's path, or None."""
        begun_s = time.monotonic()
        try:
            return self._retraining.update(slot, what, check.update.samples)
        finally:
            check.train_s += time.monotonic() - begun_s


def _at_other_rate(of: Staged) -> Staged:
    """Return a subtask with a learning rate larger by the factor _OTHER_RATE, which does as much as rounding."""
    training = of.workunit.training
    changed = replace(training, learning_rate=training.learning_rate * _OTHER_RATE)
    return replace(of, workunit=replace(of.workunit, training=changed))
