"""How many cores a Keras backend may use: environment variables, the same for every backend, read when it is imported."""


def limit_threads(threads: int) -> dict[str, str]:
    """Environment that keeps any Keras backend to `threads` cores; read when the backend is imported."""
    return {
        "OMP_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads),
        "TF_NUM_INTRAOP_THREADS": str(threads),
        "TF_NUM_INTEROP_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
