"""How a person goes on with a run that is not finished, as `vcdl status`, `stop` and `resume` say it."""

from vcdl.run.finding import shown
from vcdl.run.folder import RunFolder
from vcdl.simulate.fleet import is_simulated


def how_to_go_on(folder: RunFolder) -> str:
    """A sentence without its stop."""
    if is_simulated(folder):
        return "`vcdl simulate` with the same settings begins it anew"
    return f"`vcdl resume {shown(folder.path)}` goes on"
