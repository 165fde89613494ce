"""What one job has in download/ and templates/: its model, shards and weights, and a description for each workunit."""

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from vcdl.errors import GridError, WorkunitError
from vcdl.grids.base import Staged
from vcdl.grids.boinc.download_folder import Content, DownloadFolder, write_whole
from vcdl.grids.boinc.manifest import Manifest, Manifests
from vcdl.grids.boinc.project_folder import BoincProject
from vcdl.grids.boinc.work_settings import WorkSettings
from vcdl.shipped import shipped
from vcdl.workunit import WorkunitName

INPUT_TEMPLATE = "vcdl_in.xml"
_OUTPUT_TEMPLATE = "vcdl_out.xml"
_MAX_NBYTES = "@max_nbytes@"
_DESCRIPTION = ".json"


class Staging:
    """All calls may raise GridError, and may be repeated."""

    def __init__(self, project: BoincProject, settings: WorkSettings) -> None:
        self._project = project
        self._settings = settings
        self._download = DownloadFolder(project)
        self._manifests = Manifests(project)
        self._in_place: set[str] = set()
        """Shared files this process has seen in place."""

    @property
    def result_template(self) -> str:
        """Its name says all that is in it, so jobs with uploads of the same size share it; BOINC has room for 63 characters."""
        return f"vcdl_out_{self._settings.upload_bytes}.xml"

    @property
    def manifest(self) -> Manifest:
        """What is staged; empty when nothing is."""
        found = self._manifests.read(self._settings.job)
        return found or Manifest(self._settings.priority, self.result_template)

    def other_jobs(self) -> dict[str, Manifest]:
        """Those open beside this one."""
        return self._manifests.others(self._settings.job)

    def stage(self, staged: Sequence[Staged]) -> list[tuple[str, str, str, str]]:
        """Put everything there that the workunits need; returns the physical names of their inputs, in the order of INPUT_FILES."""
        manifest = self._stage_shared(staged)
        inputs = []
        for item in staged:
            workunit = item.workunit
            description = f"{workunit.name}{_DESCRIPTION}"
            self._download.write(description, workunit.to_json().encode())
            model = manifest.model.name if manifest.model else ""
            params, shard = manifest.params[workunit.base_version].name, manifest.shards[workunit.shard].name
            inputs.append((description, model, params, shard))
        return inputs

    def discard_params(self, is_needed: Callable[[Collection[int]], Collection[int]], keep: Collection[int]) -> None:
        """Remove the weights of all versions but `keep` and those that are still needed of the rest."""
        rest = self.manifest.params.keys() - set(keep)
        if not rest:
            return
        unwanted = rest - set(is_needed(rest))
        if unwanted:
            with self._manifests.locked():
                manifest = self.manifest
                left = manifest.without_params(unwanted)
                self._remove(manifest.names - left.names)
                self._manifests.write(self._settings.job, left)

    def clear(self) -> None:
        """Remove everything of this job that no other open job uses."""
        with self._manifests.locked():
            manifest = self.manifest
            self._remove(manifest.names)
            self._download.remove_all(lambda name: self._is_description(name))
            others = self.other_jobs().values()
            if manifest.result_template not in {other.result_template for other in others}:
                self._remove_template(manifest.result_template)
            if not others:
                self._remove_template(INPUT_TEMPLATE)
            self._manifests.remove(self._settings.job)
        self._in_place.clear()

    def download_bytes(self, name: str) -> int:
        return self._download.download_bytes(name)

    # -- shared files

    def _stage_shared(self, staged: Sequence[Staged]) -> Manifest:
        model = staged[0].model
        shards = {item.workunit.shard: item.shard for item in staged}
        params = {item.workunit.base_version: item.params for item in staged}
        with self._manifests.locked():
            manifest = self.manifest
            grown = replace(
                manifest,
                model=manifest.model or Content.of(model),
                shards=_with_new(manifest.shards, shards),
                params=_with_new(manifest.params, params),
            )
            if grown != manifest or not self._in_place:
                self._manifests.write(self._settings.job, grown)
                self._write_templates()
            self._put(model, grown.model, compress=True)
            for number, path in shards.items():
                self._put(path, grown.shards[number])
            for version, path in params.items():
                self._put(path, grown.params[version])
            return grown

    def _put(self, source: Path, content: Content | None, *, compress: bool = False) -> None:
        if content is not None and content.name not in self._in_place:
            self._download.stage(source, content, compress=compress)
            self._in_place.add(content.name)

    def _remove(self, names: Collection[str]) -> None:
        shared = {name for other in self.other_jobs().values() for name in other.names}
        for name in set(names) - shared:
            self._download.remove(name)
            self._in_place.discard(name)

    def _is_description(self, name: str) -> bool:
        if not name.endswith(_DESCRIPTION):
            return False
        try:
            return WorkunitName.parse(name.removesuffix(_DESCRIPTION)).job == self._settings.job
        except WorkunitError:
            return False

    # -- templates

    def _write_templates(self) -> None:
        templates = shipped("templates")
        try:
            given = (templates / INPUT_TEMPLATE).read_text()
            result = (templates / _OUTPUT_TEMPLATE).read_text()
        except OSError as error:
            raise GridError(f"{templates}: {error.strerror}; VCDL is not installed whole: install it again") from error
        text = result.replace(_MAX_NBYTES, str(self._settings.upload_bytes))
        write_whole(self._project.templates / INPUT_TEMPLATE, lambda target: target.write_text(given))
        write_whole(self._project.templates / self.result_template, lambda target: target.write_text(text))

    def _remove_template(self, name: str) -> None:
        with contextlib.suppress(OSError):  # it is gone, or the folder is not ours: then it is the project's
            (self._project.templates / name).unlink()


def _with_new(known: Mapping[int, Content], sources: Mapping[int, Path]) -> dict[int, Content]:
    return {**known, **{number: Content.of(path) for number, path in sources.items() if number not in known}}
