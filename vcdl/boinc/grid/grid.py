"""A BOINC project as the grid of one job.

The grid has no state that a restart would lose: workunits are in BOINC's database, and the names of staged files in the
job's manifest. The order of steps makes each call repeatable after a kill:

- `submit` stages the input files, and then creates the rows. It asks the database which rows exist, because create_work
  reports success on many errors, and BOINC never accepts the name of a workunit twice.
- `clear` and `pause` cancel workunits before they remove files, so that no client is sent a task without inputs.

Jobs share the clients without a common process. Each job's grid reads the other jobs' manifests and counts their rows,
and `refresh` decides from that how many workunits of its own job to keep open.
"""

import math
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from vcdl.boinc.grid.client_rows import ClientRows, Sending
from vcdl.boinc.grid.create_work import Creation, WorkSettings, create_work, priority_above_all, priority_of_new_work
from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.disk_room import DiskRoom
from vcdl.boinc.grid.forget import files_on_hosts
from vcdl.boinc.grid.kept_work import KeptWork
from vcdl.boinc.grid.manifest import Manifest
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.boinc.grid.publication import Publication
from vcdl.boinc.grid.results import has_arrived, host_name
from vcdl.boinc.grid.second_copies import SecondCopies
from vcdl.boinc.grid.staging import TEMPLATE_WITH_FROZEN, Staging
from vcdl.boinc.grid.supply import JobStock, Marks, marks, missing_running, missing_to_half, target_open_workunits
from vcdl.boinc.grid.workunit_rows import WorkunitRows
from vcdl.errors import GridError, for_shell
from vcdl.journal.events import WorkunitSent
from vcdl.loop.grid import Grid
from vcdl.run.staging import Staged
from vcdl.wire.workunit import WorkunitName

_BATCH = 1000
"""Largest number of workunits that are staged and created at a time, so that one pass stays short."""
_TRIES = 3
"""Attempts of create_work. A killed process may still be inserting rows, and its rows are kept."""
_PASSED_S = 3.0
"""Seconds after which every job of the project has had its turn to create work, so that none is starved."""


class BoincGrid(Grid):
    """A BOINC project as the grid of one job, for one thread of the work generator.

    Calls may raise GridError or GridUnavailable, and may be repeated.
    """

    def __init__(
        self, project: BoincProject, database: BoincDatabase, settings: WorkSettings, sent_since_s: float = 0.0
    ) -> None:
        """Prepare the grid.

        Args:
            project: The BOINC project.
            database: Its database.
            settings: The settings of the job's workunits.
            sent_since_s: Unix time after which `sent` reports results.
        """
        self._project = project
        self._database = database
        self._settings = settings
        self._rows = WorkunitRows(database, settings.job)
        self._clients = ClientRows(database, settings.account)
        self._kept = KeptWork(database, settings.job, settings.account)
        self._copies = SecondCopies(database, settings.job, settings.account, settings.late_after)
        self._staging = Staging(project, settings)
        self._newest = Publication(project, settings, self._staging)
        self._room = DiskRoom(project, settings.job)
        self._sent_since_s = sent_since_s
        self._from_result = 0
        self._reported: set[int] = set()
        """Ids, from `_from_result` on, of the results that `sent` has reported."""
        self._has: set[tuple[int, str]] = set()
        """Known pairs of a host's id and a sticky file that the host has."""
        self._is_share_told = False
        self._wanted = 0
        """Number of workunits to keep open, as of the last check of the supply."""
        self._missing_running = 0
        """Workunits to create with a priority above all others', so that the job's share of the clients runs them."""
        self._lean_since_s = math.inf
        """Monotonic time at which a shortage of unsent work over all jobs began; infinite: no shortage."""

    def submit(self, staged: Sequence[Staged]) -> None:
        """Create workunits.

        A workunit that BOINC has concluded, but whose end the journal lacks, is made ready again.
        """
        for begin in range(0, len(staged), _BATCH):
            batch = staged[begin : begin + _BATCH]
            existing = self._rows.existing([item.workunit.name for item in batch])
            # A workunit that BOINC has concluded, but whose end the journal lacks (after a kill, or with a restored
            # journal), must be claimed again and not created: BOINC never accepts a name twice.
            self._rows.hand_out_again(existing)
            self._create([item for item in batch if item.workunit.name not in existing])

    def has(self, workunit: str) -> bool:
        return self._rows.is_open(workunit)

    def sent(self) -> list[WorkunitSent]:
        # Read this before the results: a result that is sent between the two queries has an id at or above it, so that
        # the next call reports it.
        first_unsent = self._clients.first_unsent()
        sendings = self._clients.sent_results(self._settings.job, self._sent_since_s, self._from_result)
        new = [sending for sending in sendings if sending.result not in self._reported]
        events = [WorkunitSent(sending.workunit, host_name(sending.host), self._bytes_down(sending)) for sending in new]
        self._from_result = first_unsent
        # Results below `_from_result` are not read again, so this set stays as small as the window of unsent ones.
        self._reported = {sending.result for sending in sendings if sending.result >= first_unsent}
        return events

    def cancel(self, workunits: Collection[str]) -> None:
        self._rows.cancel(workunits, partial(has_arrived, self._project))

    def refresh(self) -> None:
        # Do this first, so that cancelled and assigned workunits are in order before the stock is counted.
        self._rows.hurry_ended()
        self._kept.repair()
        self._rows.hurry_unchecked()
        # Do this once: `vcdl set` changes the share in the job file, and the loop is opened again for a changed job.
        if not self._is_share_told:
            self._staging.tell_share()
            self._is_share_told = True
        self._update_supply()

    def target_open_workunits(self) -> int:
        return self._wanted

    def _update_supply(self) -> None:
        # With too little space create no work, but cancel none: running tasks may still return and be applied, which
        # frees their files.
        if self._room.is_short():
            self._wanted = 0
            return
        job, mine = self._settings.job, JobStock(self._settings.share, self._rows.stock())
        ahead = self._settings.queue_ahead
        # If the job names the number itself, neither the demand nor other jobs matter.
        if ahead is not None:
            self._wanted = target_open_workunits(job, {job: mine}, Marks(ahead, ahead))
            return
        others = {
            other: JobStock(manifest.share, WorkunitRows(self._database, other).stock())
            for other, manifest in self._staging.other_jobs().items()
            if manifest.account == self._settings.account  # else they are for other hosts
        }
        # Leave out jobs with nothing open, for example between the last subtask and the end: they must not hold back a
        # share of the clients.
        jobs = {job: mine} | {other: it for other, it in others.items() if it.open}
        whole = marks(self._clients.demand())
        self._missing_running = missing_running(job, jobs)
        if missing_to_half(jobs, whole) <= 0:
            self._lean_since_s = math.inf
        # A job that has its share fills a gap of the others only if the shortage lasts longer than a round of all jobs.
        # Otherwise all jobs, which read the same tables, would fill it together.
        now_s = time.monotonic()
        self._lean_since_s = min(self._lean_since_s, now_s)
        self._wanted = target_open_workunits(job, jobs, whole, others_pass=now_s - self._lean_since_s > _PASSED_S)

    def replicate_late(self, *, queue_empty: bool) -> None:
        self._copies.replicate_late(queue_empty=queue_empty)

    @property
    def offers_newest(self) -> bool:
        """Whether clients may begin with newer weights than their workunit's."""
        return self._newest.url is not None

    def publish(self, version: int, params: Path) -> None:
        self._newest.publish(version, params)

    def discard_params(self, keep: Collection[int]) -> None:
        def still_needed(versions: Collection[int]) -> set[int]:
            # Ask BOINC's tables at the moment of removal: a workunit that the journal calls finished may still be
            # downloaded by a client.
            return {WorkunitName.parse(name).base_version for name in self._rows.unfinished_names()} & set(versions)

        self._staging.discard_params(still_needed, keep)

    def pause(self) -> None:
        self.clear(forget_on_clients=True)

    def clear(self, *, forget_on_clients: bool) -> None:
        """Remove an ended or paused job's workunits and files.

        Args:
            forget_on_clients: Whether clients are asked to delete their copies.
        """
        # Cancel workunits before removing files: a client that is sent one in between would not find its inputs, and
        # report an error.
        self._rows.cancel_all(partial(has_arrived, self._project))
        self._copies.clear()
        self._kept.clear()
        # Do this before the manifest is removed, which names the files.
        if forget_on_clients:
            self._forget_on_clients(self._staging.manifest)
        self._newest.remove()
        self._staging.clear()
        self._has.clear()

    def _create(self, items: Sequence[Staged]) -> None:
        if not items:
            return
        # Withdraw pending requests to delete newly staged files, which an earlier job with the same data left, before
        # creating work that needs these files.
        sticky = self._staging.manifest.sticky
        inputs = self._staging.stage([self._with_newest(item) for item in items])
        self._clients.withdraw_delete_requests(self._staging.manifest.sticky - sticky)
        template = "" if items[0].frozen is None else TEMPLATE_WITH_FROZEN
        creations = [Creation(item.workunit.name, names, template) for item, names in zip(items, inputs, strict=True)]
        # Reset the number at once: until the next check of the supply these workunits are missing in the stock, and a
        # second batch would also be sent before other jobs' work.
        first, self._missing_running = creations[: self._missing_running], 0
        if first:
            self._create_rows(first, priority_above_all(self._database))
        if rest := creations[len(first) :]:
            self._create_rows(rest, priority_of_new_work(self._database))

    def _create_rows(self, missing: Sequence[Creation], priority: int) -> None:
        said = ""
        for _ in range(_TRIES):
            said = create_work(
                project=self._project,
                settings=self._settings,
                result_template=self._staging.result_template,
                priority=priority,
                deadline_s=self._deadline_s,
                creations=missing,
            )
            # create_work exits with 0 after many errors, and one duplicate name loses its whole INSERT (decision 009).
            # So ask the table what exists, and retry only what is missing.
            existing = self._rows.existing([creation.name for creation in missing])
            missing = [creation for creation in missing if creation.name not in existing]
            if not missing:
                return
        raise GridError(
            f"create_work did not make {len(missing)} workunits, the first {missing[0].name}; "
            f"it said: {said or 'nothing'}; "
            f"`vcdl project doctor --project-dir {for_shell(self._project.path)}` finds the cause"
        )

    @property
    def _deadline_s(self) -> float:
        """Return the deadline of new workunits in seconds: a multiple of this job's turnarounds, within its bounds."""
        settings, lateness = self._settings, self._copies.lateness
        least_s = min(settings.shortest_deadline_s, settings.deadline_s)
        return settings.deadline_s if lateness is None else lateness.deadline_s(least_s, settings.deadline_s)

    def _with_newest(self, item: Staged) -> Staged:
        """Return the workunit with the address of the newest weights added to its description."""
        return replace(item, workunit=replace(item.workunit, newest=self._newest.url))

    def _bytes_down(self, sending: Sending) -> int:
        manifest, name = self._staging.manifest, WorkunitName.parse(sending.workunit)
        new = [f"{sending.workunit}.json"]
        for content in (manifest.model, manifest.frozen, manifest.shards.get(name.shard)):
            # Count each sticky file once per host, where it stays. Weights are deleted with the last task that needs
            # them.
            if content is not None and not self._had_sticky(sending, content.name):
                new.append(content.name)
        params = manifest.params.get(name.base_version)
        if params is not None and not self._clients.had(sending, params.name, is_sticky=False):
            new.append(params.name)
        return sum(self._staging.download_bytes(file) for file in new)

    def _had_sticky(self, sending: Sending, file: str) -> bool:
        """Return whether the host had the sticky file before, and remember that it has the file now."""
        key = sending.host, file
        had = key in self._has or self._clients.had(sending, file, is_sticky=True)
        self._has.add(key)
        return had

    def _forget_on_clients(self, manifest: Manifest) -> None:
        sent = self._clients.sticky_hosts(self._settings.job)
        files = files_on_hosts(sent, manifest, self._staging.other_jobs().values())
        self._clients.ask_to_delete(files)


def clear_job(project: BoincProject, database: BoincDatabase, job: str, *, forget_on_clients: bool) -> None:
    """Cancel the workunits of a job that creates no more, and remove its files, as BoincGrid.clear does.

    Raises:
        GridError: The project or its database cannot be used.
    """
    settings = WorkSettings(job, share=1, deadline_s=0, flops=0, memory_bytes=0, disk_bytes=0, upload_bytes=0)
    BoincGrid(project, database, settings).clear(forget_on_clients=forget_on_clients)
