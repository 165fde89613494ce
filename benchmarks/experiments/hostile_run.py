"""A simulated run of which some clients are hostile, have a speed of their own, or change their names."""

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.experiments.attacks import HostileClients
from benchmarks.experiments.hostile_fleet import Hostile, HostileFleet
from benchmarks.experiments.poisoned_data import FOLDER, PoisonedData
from vcdl.errors import folder_errors
from vcdl.journal.observer import RunObserver
from vcdl.run.folder import RunFolder
from vcdl.run.run import Run
from vcdl.run.staging import Staged, Uploaded
from vcdl.simulate.client_work import TrainedWork
from vcdl.simulate.clients import Clients, SubtaskOutcome
from vcdl.simulate.training import SubtaskTraining
from vcdl.simulate.virtual_run import VirtualRun
from vcdl.wire.layout import Vector
from vcdl.wire.workunit import UpdateHeader, WorkunitName


class HostileHosts(Clients):
    """The clients of a fleet, with the speeds and names of the hostile ones."""

    def __init__(self, fleet: HostileFleet) -> None:
        super().__init__(fleet)
        self.fleet: HostileFleet = fleet
        for hostile in fleet.hostile:
            self.speeds[hostile.client] *= hostile.speed
        self._names = {hostile.client: hostile.names for hostile in fleet.hostile}
        self._hurried = {hostile.client: hostile for hostile in fleet.hostile if hostile.attack == "hurried"}
        self._renamed_every = {hostile.client: hostile.renamed_every for hostile in fleet.hostile}
        self._taken = [0] * fleet.clients
        """Subtasks that each client has taken."""

    def host(self, client: int) -> str:
        every = self._renamed_every.get(client)
        name = super().host(client)
        if (names := self._names.get(client)) is not None:
            return f"{name}-{self._taken[client] % names}"
        return name if every is None else f"{name}-{self._taken[client] // every}"

    def outcome(
        self,
        client: int,
        name: WorkunitName,
        now_s: float,
        losses: int = 0,
        *,
        bytes_down: int = 0,
        target_s: float | None = None,
    ) -> SubtaskOutcome:
        planned = super().outcome(client, name, now_s, losses, bytes_down=bytes_down, target_s=target_s)
        self._taken[client] += 1
        hostile = self._hurried.get(client)
        if hostile is not None and target_s is not None:
            held_s = 0.55 * target_s
            free_s = now_s + held_s / hostile.tasks
            return replace(planned, slot_free_s=free_s, heard_of_s=now_s + held_s, trained_s=now_s + held_s, lost=None)
        return planned


class HostileWork(TrainedWork):
    """Subtasks that are trained for real; hostile clients replace the result."""

    def __init__(self, clients: HostileHosts, data: PoisonedData, subtasks: int, *trained: Any) -> None:
        """`subtasks`: those of the whole job. `trained`: what TrainedWork takes after the clients."""
        super().__init__(clients, *trained)
        self._poisoned_data = data
        self._subtasks = subtasks
        self._applied = 0
        self._seen: dict[int, dict[str, int]] = {}
        self._hostile = {hostile.client: hostile for hostile in clients.fleet.hostile}
        self._hostile_clients = HostileClients(clients.fleet, self._up.layout)

    def done(self, workunit: str, version: int | None) -> None:
        self._applied += version is not None
        super().done(workunit, version)

    def _order(self, staged: Staged, client: int, due_s: float) -> None:
        hostile = self._attacker(client, staged.workunit.name)
        if hostile is not None:
            staged = replace(staged, shard=self._poisoned_data.shard(hostile, staged.shard))
            if hostile.attack in ("little_trained", "hurried"):
                staged = replace(staged, samples=max(1, int(hostile.scale * self._all_samples(staged))))
        super()._order(staged, client, due_s)

    def _attacker(self, client: int, workunit: str) -> Hostile | None:
        """The attack of a client on a workunit; None: it is honest."""
        hostile, done = self._hostile.get(client), self._applied / self._subtasks
        if hostile is not None and hostile.honest_every and self._is_honest(hostile, workunit):
            return None
        return hostile if hostile is not None and hostile.attacks(WorkunitName.parse(workunit), done) else None

    def _is_honest(self, hostile: Hostile, workunit: str) -> bool:
        """One of so many is, the first one of all."""
        seen = self._seen.setdefault(hostile.client, {})
        return seen.setdefault(workunit, len(seen)) % (hostile.honest_every or 1) == 0

    def _as_uploaded(self, trained: Uploaded, staged: Staged, client: int, train_s: float) -> Uploaded:
        """From a hostile client other weights, or no weights at all."""
        sent = super()._as_uploaded(trained, staged, client, train_s)
        path, name = trained.path, WorkunitName.parse(trained.workunit)
        hostile = self._attacker(client, trained.workunit)
        with folder_errors(path.parent):
            if hostile is None:
                if self._hostile:
                    self._hostile_clients.saw(*self._weights(staged, path))
                return sent
            if hostile.attack == "garbage":
                path.write_bytes(self._hostile_clients.garbage(hostile, name))
            else:
                if hostile.attack == "part_trained":
                    self._up.change_header(path, partial(_with_samples, self._all_samples(staged)))
                if hostile.attack == "other_backend":
                    self._up.change_header(path, _of_another_backend)
                base, weights = self._weights(staged, path)
                weights = self._hostile_clients.upload(hostile, name, base, weights)
                self._up.write_upload(path, weights, base, self._up.read_header(path))
        return replace(sent, size_bytes=path.stat().st_size)

    def _weights(self, staged: Staged, upload: Path) -> tuple[Vector, Vector]:
        """The weights that a client started from, and those that it trained."""
        base, _ = self._down.read(staged.start)
        weights, _ = self._up.read(upload)
        self._up.add_base(base, weights)
        return base, weights


class HostileRun(VirtualRun):
    """Runs a job on a HostileFleet."""

    def __init__(
        self, folder: RunFolder, fleet: HostileFleet, training: SubtaskTraining, observer: RunObserver
    ) -> None:
        super().__init__(folder, fleet, training, observer)
        self._hosts = HostileHosts(fleet)

    def _clients(self) -> Clients:
        return self._hosts

    def _work(self, run: Run, clients: Clients) -> TrainedWork:
        data = PoisonedData(run.folder.path / FOLDER, run.shard_files)
        return HostileWork(self._hosts, data, run.job.subtasks, self._training, *self._encodings_and_residuals(run))


def is_of(host: str, clients: Collection[int]) -> bool:
    """Whether a host name is one of these clients', whatever they call themselves."""
    names = [f"client-{client:02d}" for client in clients]
    return any(host == name or host.startswith(f"{name}-") for name in names)


def _with_samples(samples: int, header: str) -> str:
    return replace(UpdateHeader.from_json(header), samples=samples).to_json()


def _of_another_backend(header: str) -> str:
    return replace(UpdateHeader.from_json(header), backend="jax").to_json()
