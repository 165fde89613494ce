"""The steps of `vcdl server install`, in their order; a restore puts its own in the middle."""

from collections.abc import Iterable, Iterator

from vcdl.boinc.server.machine_steps import check_python, machine_steps
from vcdl.boinc.server.project_steps import has_web, project_steps, serving_steps
from vcdl.boinc.server.settings import ServerSettings
from vcdl.boinc.server.steps import ServerStep


def install_steps(settings: ServerSettings, between: Iterable[ServerStep] = ()) -> Iterator[ServerStep]:
    """All steps; `between`: those after the project is made, and before anything serves. Raises ServerError."""
    settings.check()
    check_python(settings.python)
    yield from machine_steps(settings, with_web=has_web())
    yield from project_steps(settings)
    yield from between
    yield from serving_steps(settings)
