"""Load data sets that Keras downloads and keeps in ~/.keras/datasets."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vcdl.errors import DataError

_SILENCE_S = 30.0
"""Seconds without data after which a download is given up, because a stalled connection may never close."""


def download_dataset(module: str, title: str, advice: str) -> Any:
    """Return `((x_train, y_train), (x_test, y_test))` of `keras.datasets.<module>`.

    Args:
        module: Name of Keras' module.
        title: Name of the data set, for messages.
        advice: The end of a message about a failure.

    Raises:
        DataError: The download failed.
    """
    import keras

    try:
        # Keras offers no time-out of its own: it calls urllib, which takes the default of the socket module.
        with _default_timeout(_SILENCE_S):
            return getattr(keras.datasets, module).load_data()
    except Exception as error:  # Keras reports a failed download as a plain Exception, a cut-short file as many kinds
        reason = " ".join(str(error).split())[:300]
        raise DataError(f"{title} cannot be downloaded: {reason}. Check the connection, or {advice}") from error


@contextmanager
def _default_timeout(timeout_s: float) -> Iterator[None]:
    before_s = socket.getdefaulttimeout()
    socket.setdefaulttimeout(timeout_s)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before_s)
