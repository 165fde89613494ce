"""Train the workunit of a BOINC task, on the cores or the device that the client assigned to it."""

import logging
import math
import os
import platform
import time
from pathlib import Path

from vcdl.client.boinc_supervisor import BoincSupervisor
from vcdl.client.compiled import CompiledPrograms
from vcdl.client.init_data import InitData
from vcdl.client.inputs import read_workunit
from vcdl.client.memory import available_memory_bytes
from vcdl.client.newest import NewestWeights
from vcdl.client.process_age import age_s
from vcdl.client.processors import device_environment, limit_threads, tell_unless_used
from vcdl.client.residual import HostMemory
from vcdl.client.resources import check_memory
from vcdl.client.slot import CHECKPOINT_FILE
from vcdl.client.train import CHECKPOINT_EVERY_S, Outcome, TrainingTerms, train_workunit
from vcdl.client.trainer import TrainerCache
from vcdl.client.unneeded import hide_unneeded
from vcdl.client.wrapper_supervisor import WrapperSupervisor
from vcdl.files.version import __version__
from vcdl.wire.workunit import DESCRIPTION_FILE

_log = logging.getLogger(__name__)


def train_task(
    slot: Path, supervisor: BoincSupervisor | WrapperSupervisor, init: InitData, threads: int | None
) -> bool:
    """Train the workunit in the slot; return False if a checkpoint was left to continue from later.

    It sets environment variables of this process, and imports Keras.

    Args:
        slot: The task's folder.
        supervisor: The BOINC client or wrapper.
        init: The BOINC client's facts about the task.
        threads: Cores to use, or None for as many as the client assigns.

    Raises:
        VcdlError, OSError: As `train_workunit`.
        Shortage: The machine lacks memory now.
    """
    cores = threads or max(1, math.ceil(init.cpus))
    _log.info("VCDL %s, Python %s, cores to use: %d", __version__, platform.python_version(), cores)
    # Check this before Keras is imported: postponing the task now costs a second, while later it would be killed.
    check_memory(init.memory_bytes, available_memory_bytes())
    compiled = CompiledPrograms(slot, init.kept)
    # Set all variables before the import of Keras, which reads them once.
    os.environ.update(limit_threads(cores))
    os.environ.update(device_environment(init, os.environ.get("CUDA_VISIBLE_DEVICES")))
    os.environ.update(compiled.environment)
    compiled.take()
    _write_only_within(slot)
    hide_unneeded()
    before_s = _before_s(slot, init.project)
    tell_unless_used(init)
    period_s = init.checkpoint_period_s or CHECKPOINT_EVERY_S
    newest = (
        NewestWeights.of_app_version(supervisor.may_use_network) if isinstance(supervisor, BoincSupervisor) else None
    )
    terms = TrainingTerms(period_s, newest, before_s=before_s, host=HostMemory.of_boinc(init, slot))
    outcome = train_workunit(slot, supervisor, TrainerCache(), terms)
    if outcome is not Outcome.DONE:
        return False
    # Do this only for a finished task: a task that quits continues in the same slot, with the same programs.
    compiled.hand_over()
    return True


def _before_s(slot: Path, project: Path) -> dict[str, float]:
    """Import Keras, and return the seconds before now: `start` of this process, and `paused` or `host` before it.

    `paused` is the time since the checkpoint, `host` the time since the files arrived if there is no checkpoint.

    Raises:
        WorkunitError: The slot has no workunit.
    """
    came = project / read_workunit(slot).description_file
    import keras  # noqa: F401  the start of a process ends with it

    started_s = age_s()
    checkpoint = slot / CHECKPOINT_FILE
    came = came if came.is_file() else slot / DESCRIPTION_FILE
    stage, since = ("paused", checkpoint) if checkpoint.exists() else ("host", came)
    waited_s = time.time() - since.stat().st_mtime - started_s
    return {"start": started_s, stage: max(0.0, waited_s)}


def _write_only_within(slot: Path) -> None:
    """Make libraries write only in the slot: Keras' settings and temporary files."""
    os.environ.update({"KERAS_HOME": str(slot), "TMPDIR": str(slot)})
