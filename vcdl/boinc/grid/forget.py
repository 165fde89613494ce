"""Request that clients delete the files that they keep of a job: model, frozen weights and shards are sticky."""

from collections.abc import Collection

from vcdl.boinc.grid.client_rows import ClientRows
from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.download_folder import Content
from vcdl.boinc.grid.manifest import Manifest, Manifests
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.run.folder import RunFolder
from vcdl.run.reading import is_finished
from vcdl.wire.workunit import WorkunitName


def files_on_hosts(
    sent: Collection[tuple[int, str]], manifest: Manifest, others: Collection[Manifest]
) -> set[tuple[int, str]]:
    """Return the sticky files of a job that hosts have and no other open job uses: (host's id, file's physical name).

    Args:
        sent: Hosts with the name of a workunit that was sent to them.
        manifest: The job's files.
        others: The manifests of the other open jobs.
    """
    # Leave out files of other open jobs: files are named by content, so jobs with the same data share them on a host.
    kept = {name for other in others for name in other.sticky}
    contents = (
        (host, manifest.model, manifest.frozen, manifest.shards.get(WorkunitName.parse(workunit).shard))
        for host, workunit in sent
    )
    return {
        (host, content.name)
        for host, *files in contents
        for content in files
        if content is not None and content.name not in kept
    }


def forget_finished(project: BoincProject, database: BoincDatabase, folder: RunFolder) -> int:
    """Have clients delete a finished job's sticky files that no open job uses; return the number of hosts asked.

    Raises:
        GridError: The project or its database cannot be read.
    """
    clients, job = ClientRows(database), folder.path.name
    sent = clients.sticky_hosts(job)
    if not sent:
        return 0
    shards = sorted({WorkunitName.parse(workunit).shard for _, workunit in sent})
    contents = {number: Content.of(folder.shard(number)) for number in shards}
    frozen = Content.of(folder.frozen_file) if folder.frozen_file.exists() else None
    # Rebuild the manifest, which was removed when the job ended, from the run's folder: equal content gives equal
    # names. Read only shards that were sent, since each has to be hashed.
    manifest = Manifest(1, "", Content.of(folder.model_file), contents, frozen=frozen)
    files = files_on_hosts(sent, manifest, Manifests(project).others(job).values())
    clients.ask_to_delete(files)
    return len({host for host, _ in files})


def jobs_kept_on_clients(project: BoincProject, database: BoincDatabase) -> list[str]:
    """Return the names of the finished jobs whose files some clients still keep.

    Raises:
        GridError: The project or its database cannot be read.
    """
    clients = ClientRows(database)
    folders = sorted(project.runs_folder.iterdir()) if project.runs_folder.is_dir() else []
    finished = (folder for folder in map(RunFolder, folders) if is_finished(folder) and folder.model_file.exists())
    return [
        folder.path.name for folder in finished if clients.keep(folder.path.name, Content.of(folder.model_file).name)
    ]
