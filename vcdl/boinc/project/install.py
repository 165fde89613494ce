"""Install or update VCDL in a BOINC project, following an InstallPlan.

Each file is written whole, and config.xml last, so that the programs that it starts exist. After a kill the next run
completes the installation; after a complete one it changes nothing.
"""

import difflib
import re
import time
from collections.abc import Iterator
from pathlib import Path

from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.host_care import HostCare, read_suspensions
from vcdl.boinc.grid.project_folder import APP
from vcdl.boinc.project import files, rows
from vcdl.boinc.project.app_version import publish
from vcdl.boinc.project.plan import InstallPlan
from vcdl.boinc.project.processes import tell_feeder
from vcdl.boinc.project.tools import last_words, run_tool
from vcdl.errors import GridError

_SECRET = re.compile(r"(<(\w*passw\w*)>).*(</\2>)")


def install(plan: InstallPlan, database: BoincDatabase) -> Iterator[str]:
    """Carry out the plan while the caller iterates, yielding a line for each change.

    Raises:
        GridError: A file cannot be written, or a program of BOINC failed.
    """
    if plan.changes_nothing:
        return
    # Write the record first: without it an edited file could not be restored. A record of an edit that was not made is
    # harmless, because the file's digest shows that it is unchanged.
    plan.record.write(plan.threads, plan.edits)
    for file in plan.new_files:
        is_new = not file.path.exists()
        files.write(file.path, file.content, file.mode or files.FILE_MODE)
        yield f"{'wrote' if is_new else 'renewed'} {plan.project.display_path(file.path)}"
    for path in plan.not_kept:
        files.delete(path)
        yield f"removed {plan.project.display_path(path)}"
    # Edit config.xml last: from then on bin/start runs our daemons, which need the files, the app and its versions.
    *first, config = plan.edits
    for edit in first:
        yield from _edit(plan, edit.path, edit.now, edit.after)
    yield from _set_up_app(plan, database)
    yield from _edit(plan, config.path, config.now, config.after)


def _edit(plan: InstallPlan, path: Path, now: bytes | None, after: bytes) -> Iterator[str]:
    if now != after:
        files.write(path, after)
        yield f"{'wrote' if now is None else 'edited'} {plan.project.display_path(path)}"


def _set_up_app(plan: InstallPlan, database: BoincDatabase) -> Iterator[str]:
    if plan.app is None:
        # xadd reads project.xml, which was edited before. Check the row, because its exit code proves nothing.
        said = run_tool(plan.project.path, "xadd")
        yield f"added the app {APP} to the database"
        if rows.app_row(database) is None:
            raise GridError(f"bin/xadd did not add the app: {last_words(said)}; run it by hand in {plan.project.path}")
    app = rows.app_row(database)
    if app is None:
        raise GridError(f"the app {APP} was removed from the database meanwhile: run this again")
    if app.settings != rows.APP_SETTINGS:
        rows.set_app(database, app)
        yield f"set {', '.join(f'{column} = {value}' for column, value in rows.APP_SETTINGS.items())} of the app"
    if plan.versions.unpublished:
        yield from _publish(plan, app, database)
    # Deprecate old versions after the new ones are published, so that at every moment one version is offered.
    for versions, deprecated in ((plan.versions.to_deprecate, True), (plan.versions.to_offer, False)):
        for version in versions:
            rows.set_deprecated(database, version, deprecated)
            yield f"app version {version.label} is {'no longer' if deprecated else 'again'} offered"
    HostCare(plan.project, database).hold(read_suspensions(plan.project), time.time())  # in the new app version as well
    tell_feeder(plan.project)


def _publish(plan: InstallPlan, app: rows.AppRow, database: BoincDatabase) -> Iterator[str]:
    said = publish(plan.project.path, plan.config.key_dir, plan.versions.unpublished, plan.client)
    now = {(each.number, each.key) for each in rows.published_versions(database, app) if each.is_ours}
    for folder, variant in plan.versions.unpublished.items():
        if (plan.versions.number, variant.key) not in now:
            raise GridError(
                f"bin/update_versions did not publish {plan.project.display_path(folder)}: {last_words(said)}"
            )
        yield f"signed and published {plan.project.display_path(folder)}"


def preview(plan: InstallPlan) -> Iterator[str]:
    """Yield the changes of an install as lines, without passwords."""
    shown = plan.project.display_path
    for edit in plan.edited:
        name = shown(edit.path)
        old, new = ((content or b"").decode(errors="replace").splitlines() for content in (edit.now, edit.after))
        lines = difflib.unified_diff(old, new, name if edit.now else "/dev/null", name, lineterm="")
        yield from (_SECRET.sub(r"\1***\3", line) for line in lines)
    for file in plan.new_files:
        state = "changed" if file.path.exists() else "new file"
        yield f"{state}: {shown(file.path)}{' (not shown: it may hold a password)' if file.is_secret else ''}"
    for folder, variant in plan.versions.unpublished.items():
        names = [*plan.client.contents_of(variant)]
        names.remove("version.xml")
        yield f"new files: {shown(folder)}/ and, signed, in {shown(plan.project.download_dir)}/: {', '.join(names)}"
    for path in plan.not_kept:
        yield f"remove {shown(path)}"
    yield from _new_rows(plan)


def _new_rows(plan: InstallPlan) -> Iterator[str]:
    if not plan.app_is_set:
        settings = ", ".join(f"{column} = {value}" for column, value in rows.APP_SETTINGS.items())
        yield f"{'new row' if plan.app is None else 'row'} in app: {APP}, {settings}"
    for folder in plan.versions.unpublished:
        yield f"new row in app_version: {plan.versions.number / 100:.2f} {folder.name}"
    for versions, value in ((plan.versions.to_deprecate, 1), (plan.versions.to_offer, 0)):
        for version in versions:
            yield f"row in app_version: {version.label}, deprecated = {value}"
