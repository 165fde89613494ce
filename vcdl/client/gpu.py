"""Which device a training uses: the one that the BOINC client gave to the task, or the processor."""

import logging

from vcdl.client.init_data import InitData

_log = logging.getLogger(__name__)


def device_environment(init: InitData, visible: str | None) -> dict[str, str]:
    """Environment that leaves a Keras backend this task's device only; read when the backend is imported.

    `visible`: CUDA_VISIBLE_DEVICES of the BOINC client, None when it has none; the client counts only what is visible to it.
    """
    if not _has_nvidia_gpu(init):
        return {"CUDA_VISIBLE_DEVICES": "-1"}
    devices = visible.split(",") if visible else []
    device = devices[init.gpu_device] if init.gpu_device < len(devices) else str(init.gpu_device)
    return {
        "CUDA_VISIBLE_DEVICES": device.strip(),
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",  # others may use the device too
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "TF_CPP_MIN_LOG_LEVEL": "1",  # TensorFlow's warnings say why it cannot use a device
    }


def tell_unless_used(init: InitData) -> None:
    """Say so when the task was given a GPU and Keras, which this imports, will train on the processor."""
    if init.gpu_device < 0:
        return
    import keras

    if not _has_nvidia_gpu(init):
        _log.warning("GPU %d is of type %s, VCDL uses NVIDIA's only: training on the processor", init.gpu_device, init.gpu_type)  # fmt: skip
    elif keras.backend.backend() != "torch" and not keras.distribution.list_devices("gpu"):
        _log.warning(
            "Keras does not see GPU %d: training on the processor. Check nvidia-smi, and that the Python has TensorFlow's "
            "CUDA libraries (pip install 'tensorflow[and-cuda]')",
            init.gpu_device,
        )


def _has_nvidia_gpu(init: InitData) -> bool:
    return init.gpu_device >= 0 and init.gpu_type.upper() in ("NVIDIA", "CUDA")
