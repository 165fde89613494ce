"""Choose the processors of a training: the number of cores, and the device that the BOINC client assigned."""

import logging
import os
import platform
from contextlib import suppress
from functools import cache
from pathlib import Path

from vcdl.client.init_data import InitData
from vcdl.files.version import __version__

_log = logging.getLogger(__name__)


@cache
def machine_words() -> str:
    """Return version, system, processor and memory of this machine as text, for the operator of a job."""
    processor = platform.processor() or platform.machine()
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        processor = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    words = [f"vcdl {__version__}", platform.system(), f"{os.cpu_count()} × {processor}"]
    with suppress(AttributeError, ValueError, OSError):
        words.append(f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / (1 << 30):.0f} GB")
    return ", ".join(words)[:200]


def limit_threads(threads: int) -> dict[str, str]:
    """Return environment variables that limit any Keras backend to `threads` cores. Set them before its import."""
    return {
        "OMP_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads),
        "TF_NUM_INTRAOP_THREADS": str(threads),
        # Run one operation at a time: a client has few cores, which several thread pools would have to share.
        "TF_NUM_INTEROP_THREADS": "1",
        "NPROC": str(threads),
        "PJRT_NPROC": str(threads),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


def device_environment(init: InitData, visible: str | None) -> dict[str, str]:
    """Return environment variables that make Keras see only the GPU of this task, or none if it has none.

    Args:
        init: The BOINC client's facts about the task.
        visible: The client's CUDA_VISIBLE_DEVICES.
    """
    if not _has_nvidia_gpu(init):
        return {"CUDA_VISIBLE_DEVICES": "-1"}
    devices = visible.split(",") if visible else []
    # The client numbers only the devices that it sees, which may be fewer than the machine's. Translate its number.
    device = devices[init.gpu_device] if init.gpu_device < len(devices) else str(init.gpu_device)
    return {
        "CUDA_VISIBLE_DEVICES": device.strip(),
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",  # other processes may use the device too
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "TF_CPP_MIN_LOG_LEVEL": "1",  # TensorFlow's warnings say why it cannot use a device
    }


def tell_unless_used(init: InitData) -> None:
    """Warn if the task was assigned a GPU but Keras (imported here) will train on the processor."""
    if init.gpu_device < 0:
        return
    import keras

    if not _has_nvidia_gpu(init):
        _log.warning(
            "GPU %d is of type %s, but VCDL uses only NVIDIA's: training on the processor",
            init.gpu_device,
            init.gpu_type,
        )
    elif keras.backend.backend() != "torch" and not keras.distribution.list_devices("gpu"):
        _log.warning(
            "Keras does not see GPU %d: training on the processor. Check nvidia-smi, and that Python has TensorFlow's "
            "CUDA libraries (pip install 'tensorflow[and-cuda]')",
            init.gpu_device,
        )


def _has_nvidia_gpu(init: InitData) -> bool:
    return init.gpu_device >= 0 and init.gpu_type.upper() in ("NVIDIA", "CUDA")
