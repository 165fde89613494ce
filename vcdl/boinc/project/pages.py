"""Provide the pages for volunteers below html/: jobs, description, title.

The page of jobs is ours: install overwrites it, and uninstall removes it. A description or a title that the operator
has written is neither overwritten nor removed.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from vcdl.boinc.project import files
from vcdl.files.shipped import shipped_folder

JOBS_PAGE = Path("html/user/vcdl_jobs.php")
JOBS_FILE = Path("html/user/vcdl_jobs.json")
"""The figures that the work generator writes for the page."""
_DESCRIPTION = Path("html/project/project_description.php")
_TITLE = Path("html/project/project.inc")
_PLACEHOLDERS = {
    name: b'define("' + name + b'", "REPLACE WITH ' + words + b'");'
    for name, words in ((b"PROJECT", b"PROJECT NAME"), (b"COPYRIGHT_HOLDER", b"COPYRIGHT HOLDER"))
}
"""Placeholders that make_project leaves in the title and the footer of each page."""
_OURS = b" // by vcdl project install"
_TITLED = re.compile(rb'define\("(PROJECT|COPYRIGHT_HOLDER)", "[^"\n]*"\);' + re.escape(_OURS))


def pages(project: Path, name: str) -> Iterator[tuple[Path, bytes]]:
    """Yield the pages to write, with their content.

    Args:
        project: The project's folder.
        name: The project's long name.

    Raises:
        GridError: A page cannot be read.
    """
    if not (project / "html").is_dir():
        return
    yield project / JOBS_PAGE, _read_shipped(JOBS_PAGE)
    # Never overwrite a description: it is the operator's, even if it is one of an earlier release.
    if not (project / _DESCRIPTION).exists():
        yield project / _DESCRIPTION, _read_shipped(_DESCRIPTION)
    settings = files.read(project / _TITLE)
    if settings is not None and name:
        # The name goes into a PHP string, which quotes, backslashes, `$` and line breaks would end or expand.
        safe, titled = re.sub(r'["\\$\n]', "", name).encode(), settings
        for constant, placeholder in _PLACEHOLDERS.items():
            titled = titled.replace(placeholder, b'define("' + constant + b'", "' + safe + b'");' + _OURS, 1)
        if titled != settings:
            yield project / _TITLE, titled


def pages_to_remove(project: Path) -> Iterator[Path]:
    """Yield the paths of our pages, whether they exist or not; a description that was changed is left out.

    Raises:
        GridError: A page cannot be read.
    """
    yield project / JOBS_PAGE
    yield project / JOBS_FILE
    if files.read(project / _DESCRIPTION) == _read_shipped(_DESCRIPTION):
        yield project / _DESCRIPTION


def find_titled_page(project: Path) -> tuple[Path, bytes, bytes] | None:
    """Return the file in which install set the title: path, content now, and content without our title.

    None if no title of ours is there.

    Raises:
        GridError: The file cannot be read.
    """
    path = project / _TITLE
    now = files.read(path)
    if now is None or _OURS not in now:
        return None
    return path, now, _TITLED.sub(lambda found: _PLACEHOLDERS[found[1]], now)


def _read_shipped(page: Path) -> bytes:
    return (shipped_folder("boinc_project") / page).read_bytes()
