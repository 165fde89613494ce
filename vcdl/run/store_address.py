"""The address of a run's store: decided when the run is prepared, and held to from then on.

The address comes from the job file or from the environment. The environment may differ whenever a process of the run
starts; in another store the process would find nothing, and take the weights for lost.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vcdl.errors import StoreError
from vcdl.run.frozen_job import store_password
from vcdl.stores.settings import PASSWORD_VARIABLE, URL_VARIABLE, Service, StoreSettings

if TYPE_CHECKING:
    from vcdl.job import Job
    from vcdl.run.folder import RunFolder

OWN_FOLDER = "store/"
"""The address of the folder inside the run's own, which moves with it."""
_FILE = "file:"


def asked_settings(job: "Job", folder: "RunFolder") -> StoreSettings:
    """The store that the job file or the environment names, else a folder of the run.

    The password: the URL's, else the run's own file for the job file's URL, else the environment's. Raises
    StoreError, FileUnavailable.
    """
    environment = dict(os.environ)
    if job.store.url and (password := store_password(folder)):
        environment[PASSWORD_VARIABLE] = password
    url = job.store.url or os.environ.get(URL_VARIABLE) or f"{_FILE}{folder.store}"
    return StoreSettings.parse(url, job.store.consistency, environment)


def store_address(settings: StoreSettings, folder: "RunFolder") -> str:
    """The address that is written down: no login, no password."""
    is_own = settings.service == Service.FILE and settings.folder.absolute() == folder.store.absolute()
    return OWN_FOLDER if is_own else settings.address


def held_to(settings: StoreSettings, kept: str, job: "Job", folder: "RunFolder") -> StoreSettings:
    """The settings of the store at the address `kept`. Raises StoreError when they are those of another one."""
    if store_address(settings, folder) == kept:
        return settings
    if settings.service == Service.FILE and kept.startswith(_FILE) and not settings.folder.is_absolute():
        began = Path(kept.removeprefix(_FILE))
        if began.parts[len(began.parts) - len(settings.folder.parts) :] == settings.folder.parts:
            return replace(settings, folder=began)  # what it was in the current folder of that time
    raise StoreError(_words(settings, kept, job, folder))


def _words(settings: StoreSettings, kept: str, job: "Job", folder: "RunFolder") -> str:
    where, url = ("its own folder", f"{_FILE}{folder.store}") if kept == OWN_FOLDER else (kept, kept)
    now = store_address(settings, folder)
    now = "its own folder" if now == OWN_FOLDER else now
    begin = f"{folder.path} keeps its weights in {where}"
    login = "" if url.startswith(_FILE) else " with its login"
    written = f"write `url: {url}`{login} below `store` in {folder.job_file}"
    if job.store.url:
        return f"{begin}, and its job.yaml now names {now}: {written}"
    where_set = folder.kind.environment
    variable = f"{URL_VARIABLE} (in {where_set})" if where_set else URL_VARIABLE
    alone = f"{written}, for this run alone"
    if not os.environ.get(URL_VARIABLE):
        return f"{begin}, and {variable} is not set now: set it to that address{login}, or {alone}"
    cure = "unset it" if kept == OWN_FOLDER else "set it back"
    return f"{begin}, and {variable} now names {now}: {cure}, or {alone}"
