"""What all tests share."""

import contextlib

with contextlib.suppress(ImportError):
    # Before TensorFlow, as vcdl.stores.open.import_client_library does: see there.
    import MySQLdb  # noqa: F401
