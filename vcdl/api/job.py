"""A job file in a Python program: check it, run it, or simulate it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from vcdl.api.handle import RunHandle
from vcdl.api.order import ChildOrder
from vcdl.api.settings import as_overrides
from vcdl.job import Job, load_job
from vcdl.run.finding import folder_for
from vcdl.run.folder import RunFolder

if TYPE_CHECKING:
    from vcdl.run.checking import Checked


class JobFile:
    """A job file, some of whose keys may be replaced. The file is read again when the job is checked or run."""

    def __init__(self, file: Path, overrides: tuple[str, ...] = ()) -> None:
        self._file = file
        self._overrides = overrides
        self.settings: Job = load_job(file, overrides)
        """The job with every default filled in."""

    @classmethod
    def load(cls, file: str | Path, **sections: Any) -> Self:
        """Read and check a job file: `Job.load("job.yaml", stop={"epochs": 3}, seed=7)`.

        Raises:
            JobError: The file is invalid. The message has a line for each problem.
        """
        return cls(Path(file), as_overrides(sections))

    def __repr__(self) -> str:
        return f"<vcdl.Job {self.name} of {self._file}>"

    @property
    def name(self) -> str:
        """The job's name."""
        return self.settings.name

    def check(self) -> "Checked":
        """Check the job as `vcdl check` does, and return what was found. Nothing is written.

        Raises:
            JobError, DataError, ModelError, StoreError: The job cannot run.
        """
        from vcdl.run.checking import check_job

        return check_job(self._file, self._overrides)

    def run(self, out: str | Path | None = None, *, show: bool = True) -> RunHandle:
        """Start to train on this machine in a separate process, and return once the job is accepted and prepared.

        `RunHandle.wait` waits for the end.

        Args:
            out: The run's folder; None for runs/NAME.
            show: Print progress as `vcdl run` does.

        Raises:
            VcdlError: The job is refused; nothing is left behind then.
        """
        folder = folder_for(self.name, None if out is None else Path(out))
        return RunHandle.begin(self._order("run", folder), shows=show)

    def simulate(
        self,
        clients: int | None = None,
        *,
        clients_file: str | Path | None = None,
        out: str | Path | None = None,
        show: bool = True,
        **settings: Any,
    ) -> RunHandle:
        """Start to train on simulated clients in virtual time, as `vcdl simulate` does, in a separate process.

        Args:
            clients: Number of clients.
            clients_file: A file that describes them.
            out: The run's folder; None for runs/NAME-simulated.
            show: Print progress as `vcdl simulate` does.
            settings: Keys of a clients file, such as `slots=2` and `lost=0.3`.

        Raises:
            VcdlError: The job is refused; nothing is left behind then.
        """
        from vcdl.simulate.client_fleet import load_clients
        from vcdl.simulate.simulation import default_folder

        file = None if clients_file is None else Path(clients_file)
        given = as_overrides(settings if clients is None else {"clients": clients, **settings})
        load_clients(file, given)  # report errors before a process starts
        folder = default_folder(f"{self.name}-simulated") if out is None else RunFolder(Path(out).resolve())
        order = self._order("simulate", folder, clients_file=str(file or ""), client_settings=given)
        return RunHandle.begin(order, shows=show)

    def _order(self, action: Any, folder: RunFolder, **more: Any) -> ChildOrder:
        return ChildOrder(action, str(folder.path), str(self._file.resolve()), self._overrides, **more)
