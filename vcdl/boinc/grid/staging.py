"""Stage the files of one job in download/ and templates/: model, weights, shards, and workunits' descriptions."""

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from vcdl.boinc.grid.create_work import INPUT_TEMPLATE, WorkSettings
from vcdl.boinc.grid.download_folder import Content, DownloadFolder, writing
from vcdl.boinc.grid.frozen_input import with_frozen
from vcdl.boinc.grid.manifest import Manifest, Manifests
from vcdl.boinc.grid.project_folder import BoincProject, add_advice
from vcdl.errors import WorkunitError
from vcdl.files.atomic import sweep
from vcdl.files.shipped import shipped_folder
from vcdl.run.staging import Staged
from vcdl.wire.workunit import DESCRIPTION_SUFFIX, WorkunitName

TEMPLATE_WITH_FROZEN = "vcdl_in_frozen.xml"
"""The input template of jobs with frozen weights."""
_OUTPUT_TEMPLATE = "vcdl_out.xml"
_MAX_NBYTES = "@max_nbytes@"


class Staging:
    """Stages and removes the files of one job, under the project's lock.

    Model, weights and shards are listed in the job's manifest before they are staged and until after they are removed,
    so that a kill leaves none of them unlisted. All calls may raise GridError, and may be repeated.
    """

    def __init__(self, project: BoincProject, settings: WorkSettings) -> None:
        self._project = project
        self._settings = settings
        self._download = DownloadFolder(project)
        self._manifests = Manifests(project)
        self._in_place: set[str] = set()
        """Names of the shared files that this process has staged or found complete."""

    @property
    def result_template(self) -> str:
        """Name of the result template, derived from its content, at most 63 characters.

        Jobs with equal upload sizes share it.
        """
        return f"vcdl_out_{self._settings.upload_bytes}.xml"

    @property
    def manifest(self) -> Manifest:
        """The job's manifest, read at each access; an empty one if nothing is staged."""
        found = self._manifests.read(self._settings.job)
        return found or Manifest(self._settings.share, self.result_template, account=self._settings.account)

    def other_jobs(self) -> dict[str, Manifest]:
        """Return the manifests of the other open jobs, by job."""
        return self._manifests.others(self._settings.job)

    def stage(self, staged: Sequence[Staged]) -> list[tuple[str, ...]]:
        """Stage the input files of workunits for download.

        Files that workunits share (model, weights, shards) are staged once.

        Returns:
            For each workunit, the physical names of its inputs in the order of INPUT_FILES, followed by the name of the
            frozen weights if the model has any.
        """
        manifest = self._stage_shared(staged)
        inputs = []
        for item in staged:
            workunit = item.workunit
            description = workunit.description_file
            self._download.write(description, workunit.to_json().encode())
            model = manifest.model.name if manifest.model else ""
            params, shard = manifest.params[workunit.base_version].name, manifest.shards[workunit.shard].name
            frozen = (manifest.frozen.name,) if manifest.frozen else ()
            inputs.append((description, model, params, shard, *frozen))
        return inputs

    def tell_share(self) -> None:
        """Write the job's share into its manifest, which other jobs read: it may have changed since `stage`."""
        with self._manifests.locked():
            found = self._manifests.read(self._settings.job)
            # Without a manifest nothing is staged, and `stage` writes the share with the first files.
            if found is not None and found.share != self._settings.share:
                self._manifests.write(self._settings.job, replace(found, share=self._settings.share))

    def stage_params(self, version: int, path: Path) -> Content:
        """Stage the weights of a version to publish, even if no workunit starts from it, and return their file."""
        with self._manifests.locked():
            manifest = self.manifest
            grown = replace(manifest, params=_with_new(manifest.params, {version: path}))
            if grown != manifest:
                self._manifests.write(self._settings.job, grown)
            self._put(path, grown.params[version])
            return grown.params[version]

    def discard_params(self, is_needed: Callable[[Collection[int]], Collection[int]], keep: Collection[int]) -> None:
        """Remove the weights of versions that no client needs any more.

        Args:
            is_needed: Returns which of some versions open workunits still need.
            keep: Versions that stay in any case.
        """
        rest = self.manifest.params.keys() - set(keep)
        if not rest:
            return
        # Query without the lock, for which other jobs wait. A workunit created since then names a version in `keep`.
        unwanted = rest - set(is_needed(rest))
        if unwanted:
            with self._manifests.locked():
                manifest = self.manifest
                left = manifest.without_params(unwanted)
                # Remove files before their names, as in `_stage_shared`: what is named can be removed again after a
                # kill.
                self._remove(manifest.names - left.names)
                self._manifests.write(self._settings.job, left)

    def clear(self) -> None:
        """Remove everything of this job that no other open job uses, except the result template.

        BOINC's transitioner exits for good if it creates a result without a template, for example after a validator
        overwrote a cancellation.
        """
        with self._manifests.locked():
            manifest = self.manifest
            self._remove(manifest.names)
            # Search the whole folder for descriptions, which no manifest lists: it also finds those whose rows BOINC
            # has purged.
            self._download.remove_all(lambda name: self._is_description(name))
            if not self.other_jobs():
                for name in (INPUT_TEMPLATE, TEMPLATE_WITH_FROZEN):
                    with contextlib.suppress(OSError):  # it is gone, or the folder belongs to the project
                        (self._project.templates / name).unlink()
            self._manifests.remove(self._settings.job)
        self._in_place.clear()

    def download_bytes(self, name: str) -> int:
        return self._download.download_bytes(name)

    # -- shared files

    def _stage_shared(self, staged: Sequence[Staged]) -> Manifest:
        model, frozen = staged[0].model, staged[0].frozen
        shards = {item.workunit.shard: item.shard for item in staged}
        params = {item.workunit.base_version: item.params for item in staged}
        with self._manifests.locked():
            manifest = self.manifest
            grown = replace(
                manifest,
                model=manifest.model or Content.of(model),
                frozen=manifest.frozen or (None if frozen is None else Content.of(frozen)),
                shards=_with_new(manifest.shards, shards),
                params=_with_new(manifest.params, params),
            )
            # Write the manifest before the files: after a kill, a file that no manifest names would stay in download/
            # for ever. A name without a file is harmless, because the next call stages it.
            if grown != manifest or not self._in_place:
                self._manifests.write(self._settings.job, grown)
                # Do this in the first call of a process as well (`not self._in_place`): an operator or an upgrade may
                # have removed templates.
                self._write_templates(has_frozen=frozen is not None)
            self._put(model, grown.model, compress=True)
            if frozen is not None:
                self._put(frozen, grown.frozen)
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
        if not name.endswith(DESCRIPTION_SUFFIX):
            return False
        try:
            return WorkunitName.parse(name.removesuffix(DESCRIPTION_SUFFIX)).job == self._settings.job
        except WorkunitError:
            return False

    # -- templates

    def _write_templates(self, *, has_frozen: bool) -> None:
        templates = shipped_folder("templates")
        with add_advice(templates, "VCDL's installation is incomplete: install it again"):
            given = (templates / INPUT_TEMPLATE).read_text()
            result = (templates / _OUTPUT_TEMPLATE).read_text()
        text = result.replace(_MAX_NBYTES, str(self._settings.upload_bytes))
        sweep(self._project.templates)
        contents = {INPUT_TEMPLATE: given, self.result_template: text}
        if has_frozen:
            contents[TEMPLATE_WITH_FROZEN] = with_frozen(given)
        for name, content in contents.items():
            with writing(self._project.templates / name) as target:
                target.write_text(content)


def _with_new(known: Mapping[int, Content], sources: Mapping[int, Path]) -> dict[int, Content]:
    return {**known, **{number: Content.of(path) for number, path in sources.items() if number not in known}}
