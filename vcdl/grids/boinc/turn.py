"""Whose turn it is: BOINC's priority, moved just enough that no workunit is overtaken for ever.

The scheduler looks through the feeder's table from its begin and sends the first of equals; a place that becomes free there is filled with
new work at once. So a result in a place far back is passed over as long as work is made (seen on a real server: for ten minutes,
with two clients' worth of work), and its epoch waits for it. A higher priority wins at every look.
"""

import time

from vcdl.grids.boinc.database import BoincDatabase

_UNSENT = 2
"""result.server_state"""
_LONG_S = 30
"""A result that is unsent for longer is passed over."""


def priority_of_new_work(database: BoincDatabase, now_s: float | None = None) -> int:
    """For workunits that are made now: below all unsent ones of our app while one of them has waited for long, else back towards 0.

    It stays near 0, the priority of other apps' work, which would otherwise starve or be starved. Raises GridError.
    """
    rows = database.execute(
        "SELECT MIN(priority), MIN(create_time) FROM result WHERE appid = %s AND server_state = %s",
        database.app_id,
        _UNSENT,
    )
    lowest, oldest_s = rows[0]
    if lowest is None:
        return 0
    waits_long = oldest_s < (time.time() if now_s is None else now_s) - _LONG_S
    return int(lowest) - 1 if waits_long else min(0, int(lowest) + 1)
