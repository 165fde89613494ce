"""Train the workunit of a BOINC task: on its share of the machine, within its folders, by its files' names."""

import logging
import math
import os
import platform
from pathlib import Path

from vcdl.client.boinc_supervisor import BoincSupervisor
from vcdl.client.compiled import CompiledPrograms
from vcdl.client.init_data import InitData
from vcdl.client.memory import available_memory_bytes
from vcdl.client.newest import NewestWeights
from vcdl.client.processors import device_environment, limit_threads, tell_unless_used
from vcdl.client.resources import check_memory
from vcdl.client.soft_links import deliver_output, resolve_stubs
from vcdl.client.train import CHECKPOINT_EVERY_S, Outcome, train_workunit
from vcdl.client.trainer import TrainerCache
from vcdl.client.unneeded import hide_unneeded
from vcdl.client.wrapper_supervisor import WrapperSupervisor
from vcdl.version import __version__

_log = logging.getLogger(__name__)


def train_task(
    slot: Path, supervisor: BoincSupervisor | WrapperSupervisor, init: InitData, threads: int | None
) -> bool:
    """Train the workunit in the slot; returns whether it is done, and not left for later.

    Raises what `train_workunit` raises, and Shortage where too little memory is free.
    """
    cores = threads or max(1, math.ceil(init.cpus))
    _log.info("VCDL %s, Python %s, cores to use: %d", __version__, platform.python_version(), cores)
    check_memory(init.memory_bytes, available_memory_bytes())
    compiled = CompiledPrograms(slot, init.project)
    os.environ.update(limit_threads(cores))
    os.environ.update(device_environment(init, os.environ.get("CUDA_VISIBLE_DEVICES")))
    os.environ.update(compiled.environment)
    compiled.take()
    _write_only_within(slot)
    hide_unneeded()
    resolve_stubs(slot, init.project)
    tell_unless_used(init)
    period_s = init.checkpoint_period_s or CHECKPOINT_EVERY_S
    newest = (
        NewestWeights.of_app_version(supervisor.may_use_network) if isinstance(supervisor, BoincSupervisor) else None
    )
    outcome = train_workunit(slot, supervisor, TrainerCache(), period_s, newest)
    if outcome is not Outcome.DONE:
        return False
    deliver_output(slot, init.project)
    compiled.hand_over()
    return True


def _write_only_within(slot: Path) -> None:
    """Keep what libraries write in the slot: Keras' settings and temporary files."""
    os.environ.update({"KERAS_HOME": str(slot), "TMPDIR": str(slot)})
