"""The loops that a user would write around a Redis or a MariaDB, for comparison with the stores.

They use the client libraries as their tutorials do: a vector in one value, without chunks, records or versions.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from vcdl.stores.settings import StoreSettings
from vcdl.wire.layout import Vector
from vcdl.wire.weights import read_weights

ALPHA = np.float32(0.95)


def naive_redis(settings: StoreSettings, vector: Vector) -> Callable[[Path], None]:
    """GET, NumPy, SET of one upload."""
    import redis

    client: Any = redis.Redis(unix_socket_path=settings.socket, db=int(settings.database))
    client.set("naive", vector.tobytes())

    def update(upload: Path) -> None:
        weights, _ = read_weights(upload, vector.size)
        server = np.frombuffer(client.get("naive"), np.float32)
        client.set("naive", (ALPHA * server + (1 - ALPHA) * weights).tobytes())

    return update


def naive_mysql(settings: StoreSettings, vector: Vector) -> Callable[[Path], None]:
    """SELECT … FOR UPDATE, NumPy, UPDATE of one upload."""
    import MySQLdb

    connection = MySQLdb.connect(unix_socket=settings.socket, user=settings.user, database=settings.database)
    cursor = connection.cursor()
    cursor.execute("CREATE TABLE naive (id INT PRIMARY KEY, weights LONGBLOB) ENGINE=InnoDB")
    cursor.execute("INSERT INTO naive VALUES (1, %s)", (vector.tobytes(),))
    connection.commit()

    def update(upload: Path) -> None:
        weights, _ = read_weights(upload, vector.size)
        cursor.execute("SELECT weights FROM naive WHERE id = 1 FOR UPDATE")
        server = np.frombuffer(cursor.fetchone()[0], np.float32)
        cursor.execute(
            "UPDATE naive SET weights = %s WHERE id = 1", ((ALPHA * server + (1 - ALPHA) * weights).tobytes(),)
        )
        connection.commit()

    return update
