"""Remove VCDL from a BOINC project, and restore its files.

config.xml is restored first and the record is deleted last, so that a killed uninstall can be repeated. The jobs'
folders stay unless their deletion is requested. If a host ever had a task, the app's rows stay, deprecated, as
volunteers' credit refers to them.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vcdl.boinc.grid.client_rows import ClientRows
from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.disk_room import shortage_mark
from vcdl.boinc.grid.forget import jobs_kept_on_clients
from vcdl.boinc.grid.grid import clear_job
from vcdl.boinc.grid.host_care import read_suspensions, suspensions_file
from vcdl.boinc.grid.manifest import Manifests
from vcdl.boinc.grid.project_folder import APP, BoincProject
from vcdl.boinc.grid.results import workunit_and_result
from vcdl.boinc.grid.weights_key import WeightsKey
from vcdl.boinc.project import files, rows
from vcdl.boinc.project.app_version import our_version_folders, published_names
from vcdl.boinc.project.edited_files import EDITED
from vcdl.boinc.project.files import DOCTORS_UPLOAD
from vcdl.boinc.project.pages import find_titled_page, pages_to_remove
from vcdl.boinc.project.processes import tell_feeder, wait_for_our_daemons
from vcdl.boinc.project.record import Record
from vcdl.boinc.runtime.published import runtime_folder
from vcdl.errors import GridError, WorkunitError, for_shell
from vcdl.wire.workunit import WorkunitName


@dataclass(frozen=True)
class FileToRestore:
    """A project file that install edited, with its content now and the content to restore; None means no file."""

    path: Path
    now: bytes | None
    before: bytes | None


@dataclass(frozen=True)
class Removal:
    """All changes of an uninstall, determined before anything is changed."""

    project: BoincProject
    restored: tuple[FileToRestore, ...]
    files: tuple[Path, ...]
    """Existing files and folders of VCDL, which are deleted."""
    open_workunits: int
    """Number of open workunits, which will be cancelled."""
    app: rows.AppRow | None
    runs: int
    """Number of jobs whose folders stay."""
    not_told: int
    """Number of clients that have not received our request to delete files; after an uninstall they never will."""
    kept_on_clients: tuple[str, ...]
    """Finished jobs whose files some clients still keep."""
    delete_rows: bool
    """Whether the app's rows are deleted in any case, together with its workunits and results."""
    refusals: tuple[str, ...]
    """Reasons why nothing may be removed now."""

    def preview(self) -> Iterator[str]:
        """Yield the planned changes as lines."""
        yield from (f"not possible now: {refusal}" for refusal in self.refusals)
        if self.open_workunits:
            yield f"cancel {self.open_workunits} open workunits"
        for each in self.restored:
            yield f"{'restore' if each.before is not None else 'remove'} {self.project.display_path(each.path)}"
        for path in self.files:
            yield f"remove {self.project.display_path(path)}"
        if self.app is not None:
            yield (
                "delete the app's rows from the database, with all its workunits and results"
                if self.delete_rows
                else "delete the app's rows from the database, or deprecate them when hosts have had tasks of it"
            )
        if self.runs:
            yield f"keep vcdl/runs with {self.runs} jobs"
        if self.not_told:
            yield (
                f"leave files of ours on {self.not_told} clients that have not been asked yet to delete them: "
                "while the project runs they ask twice a minute, so start it and wait to avoid that"
            )
        if self.kept_on_clients:
            yield (
                f"leave files of {', '.join(self.kept_on_clients)} on the clients that keep them: to avoid that, "
                f"`vcdl stop JOB --project-dir {for_shell(self.project.path)} --forget` for each while the "
                "project runs, and wait"
            )

    def carry_out(self, database: BoincDatabase) -> Iterator[str]:
        """Carry out the plan while the caller iterates, yielding a line for each change.

        Raises:
            GridError: The plan has refusals, or a change failed.
        """
        for refusal in self.refusals:
            raise GridError(refusal)
        # Restore files in reverse order of install, config.xml first, so that bin/start and cron start none of our
        # programs any more.
        for each in reversed(self.restored):
            if each.before is None:
                files.delete(each.path)
            else:
                files.write(each.path, each.before)
            yield f"{'restored' if each.before is not None else 'removed'} {self.project.display_path(each.path)}"
        # Do this before files and rows are deleted: clients are asked to abort tasks and delete files through the app's
        # rows.
        yield from self._give_up_jobs(database)
        if self.app is not None:
            if self.delete_rows:
                rows.delete_app(database, self.app)
                ClientRows(database).delete_requests()
                yield f"deleted the rows of the app {APP} from the database, with all its workunits and results"
            elif rows.remove_app(database, self.app):
                yield f"deleted the rows of the app {APP} from the database"
            else:
                yield f"the app {APP} stays in the database, deprecated: the credit of volunteers refers to it"
            tell_feeder(self.project)
        # Delete files after the rows, in the order of `_our_files`, whose last one is the record.
        for path in self.files:
            files.delete(path)
            yield f"removed {self.project.display_path(path)}"
        self._remove_empty_folders()
        if self.runs:
            yield f"kept vcdl/runs with {self.runs} jobs: delete the folder if you do not need them"
        if self.kept_on_clients or ClientRows(database).not_told():
            yield "left files of VCDL on clients: they stay there until the client resets or leaves the project"

    def _give_up_jobs(self, database: BoincDatabase) -> Iterator[str]:
        if self.app is None:
            return
        for job in sorted(Manifests(self.project).jobs()):
            clear_job(self.project, database, job, forget_on_clients=True)
            yield f"cancelled the work of job {job} on the clients"
        if self.open_workunits:
            rows.cancel_all(database, self.app)
            yield f"cancelled {self.open_workunits} open workunits"

    def _remove_empty_folders(self) -> None:
        app = self.project.path / "apps" / APP
        versions = app.iterdir() if app.is_dir() else ()
        for folder in (*versions, app, self.project.runs_folder, self.project.path / "vcdl"):
            with suppress(OSError):  # it contains something that is not ours
                folder.rmdir()


def plan_removal(
    project: BoincProject, database: BoincDatabase, *, force: bool, delete_runs: bool, delete_rows: bool = False
) -> Removal:
    """Determine all changes of an uninstall. Nothing is changed, but it waits for our daemons to end.

    Args:
        project: The BOINC project.
        database: Its database.
        force: Whether to cancel open workunits; otherwise they are a reason to refuse.
        delete_runs: Whether to delete the jobs' folders.
        delete_rows: Whether to delete the app's rows even if a host ever had a task.

    Raises:
        GridError: The project cannot be read.
    """
    record = Record.of(project.path)
    if not record.installed:
        raise GridError(
            f"VCDL is not installed in {project.path} (there is no vcdl/install/record.json): nothing to do"
        )
    project.check_user()
    app = rows.app_row(database)
    count = rows.open_workunits(database, app) if app else 0
    contents = {project.path / name: files.read(project.path / name) for name in EDITED}
    restored = [FileToRestore(path, now, record.without_us(path, now)) for path, now in contents.items()]
    # Insert it first, so that it is restored last.
    if (title := find_titled_page(project.path)) is not None:
        restored.insert(0, FileToRestore(*title))
    ours = _our_files(project, delete_runs=delete_runs, delete_rows=delete_rows)
    runs = len([each for each in project.runs_folder.glob("[!.]*") if each.is_dir()])  # .service is no job
    return Removal(
        project=project,
        restored=tuple(each for each in restored if each.now != each.before),
        files=tuple(filter(os.path.lexists, ours)),
        open_workunits=count,
        app=app,
        runs=0 if delete_runs else runs,
        not_told=ClientRows(database).not_told(),
        kept_on_clients=tuple(jobs_kept_on_clients(project, database)),
        delete_rows=delete_rows,
        refusals=tuple(_refusals(project, 0 if force else count)),
    )


def _refusals(project: BoincProject, open_workunits: int) -> Iterator[str]:
    # Refuse while daemons run, which would write to tables and folders that are being removed.
    if running := wait_for_our_daemons(project):
        stopped = "bin/stop has asked them to end, and they complete their round: try again in a minute"
        advice = "bin/stop first (and bin/start afterwards, for the other apps)"
        yield f"{', '.join(running)} still run: {stopped if project.stop_daemons.exists() else advice}"
    if open_workunits:
        yield (
            f"{open_workunits} workunits are open: let the jobs end or `vcdl stop` them, "
            "or use --force, which cancels them for good"
        )


def _our_uploads(project: BoincProject) -> Iterator[Path]:
    """Yield the files of our tasks in upload/, which no file_deleter will delete any more."""
    for path in sorted(project.upload_dir.glob("*/*")):
        try:
            WorkunitName.parse(workunit_and_result(path)[0])
        except WorkunitError:
            if not path.name.startswith(DOCTORS_UPLOAD):
                continue
        yield path


def _our_files(project: BoincProject, *, delete_runs: bool, delete_rows: bool) -> Iterator[Path]:
    for launcher in files.launchers():
        yield project.bin / launcher.name
    yield project.bin / "vcdl_compare"  # of an install before December 2026
    folders = our_version_folders(project.path / "apps")
    for name in sorted({name for folder in folders for name in published_names(folder)}):
        yield project.download_dir / name
    yield from folders
    for folder in (project.log_dir, project.path / f"pid_{project.host}"):
        yield from sorted(folder.glob("vcdl_*"))
    yield from _our_uploads(project)
    yield project.upload_mark
    yield from sorted(project.templates.glob("vcdl_out_*.xml"))
    yield project.manifests
    yield project.checker_socket  # of a checker that was killed
    yield shortage_mark(project)
    yield project.path / "vcdl" / "environment"
    yield WeightsKey.file(project.path)
    yield runtime_folder(project.path)
    yield from pages_to_remove(project.path)
    if delete_runs:
        yield project.runs_folder
    if delete_rows or not read_suspensions(project).of:
        yield suspensions_file(project)
    yield project.path / "vcdl" / "install"  # last: until then this can be repeated
