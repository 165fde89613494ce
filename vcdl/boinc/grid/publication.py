"""The newest weights of a job in download/, with a signed statement of what they are (vcdl.wire.newest)."""

from pathlib import Path

from vcdl.boinc.grid.create_work import WorkSettings
from vcdl.boinc.grid.download_folder import DownloadFolder
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.boinc.grid.staging import Staging
from vcdl.boinc.grid.weights_key import WeightsKey
from vcdl.errors import FileUnavailable
from vcdl.files.atomic import file_sha256
from vcdl.wire.newest import Newest


class Publication:
    """Publishes the newest weights of one job; all calls may raise GridError, and may be repeated."""

    def __init__(self, project: BoincProject, settings: WorkSettings, staging: Staging) -> None:
        self._project = project
        self._settings = settings
        self._staging = staging
        self._download = DownloadFolder(project)
        self._name = f"vcdl_newest_{settings.job}.json"
        self._key = WeightsKey.of(project) if settings.offers_newest else None

    @property
    def url(self) -> str | None:
        """Address of the statement; None if the job publishes nothing, or the project has no key."""
        return None if self._key is None else self._project.url_of_download(self._name)

    def publish(self, version: int, params: Path) -> None:
        """Publish the weights of a version, and then a signed statement that names them."""
        if self._key is None:
            return
        # Stage the weights first: a client that reads the new statement must find the file that it names.
        content = self._staging.stage_params(version, params)
        newest = Newest(
            job=self._settings.job,
            layout=self._settings.layout,
            version=version,
            url=self._project.url_of_download(content.name),
            size_bytes=content.size_bytes,
            sha256=_sha256(params),
        )
        self._download.write(self._name, self._key.sign(newest.to_json()).encode())

    def remove(self) -> None:
        """Remove the published statement."""
        self._download.remove(self._name)


def _sha256(path: Path) -> str:
    try:
        return file_sha256(path)
    except OSError as error:
        raise FileUnavailable(
            f"{path}: {error.strerror or error}; the weights are published when it can be read"
        ) from error
