"""Write the page of a run as one HTML file that contains its style and its curves, and loads nothing else."""

from importlib.resources import files
from pathlib import Path

from vcdl.files.atomic import whole_file
from vcdl.report.own_settings import own_settings
from vcdl.run.folder import RunFolder
from vcdl.web.job_page import Pages
from vcdl.web.job_view import JobView


def write_page(folder: RunFolder, file: Path) -> None:
    """Write the page of a run, finished or not, with the run's own settings.

    Hosts are numbered instead of named, as for a visitor of the service, because the page may be published.

    Args:
        folder: The run.
        file: The file to write; it is replaced atomically.

    Raises:
        RunFolderError: The run cannot be read, or the file cannot be written.
        JobError, JournalError: The run cannot be read.
    """
    pages = Pages()
    with JobView(folder).current() as view:
        parts = pages.job_parts(view, is_public=True, by_epoch=True)
        settings = own_settings(view.job)
    style = files("vcdl.web").joinpath("static/style.css").read_text(encoding="utf-8")
    page = pages.environment.get_template("static.html")
    text = page.render(name=folder.path.name, parts=parts, style=style, settings=settings)
    with whole_file(file) as temporary:
        temporary.write_text(text, encoding="utf-8")
