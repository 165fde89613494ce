"""The numbers in BOINC's tables and requests that have a meaning."""

from enum import IntEnum, IntFlag


class Server(IntEnum):
    """result.server_state"""

    UNSENT = 2
    IN_PROGRESS = 4
    OVER = 5


class Outcome(IntEnum):
    """result.outcome"""

    INIT = 0
    SUCCESS = 1
    COULDNT_SEND = 2
    CLIENT_ERROR = 3
    NO_REPLY = 4
    DIDNT_NEED = 5
    VALIDATE_ERROR = 6
    CLIENT_DETACHED = 7


class Validate(IntEnum):
    """result.validate_state"""

    INIT = 0
    VALID = 1
    INVALID = 2
    NO_CHECK = 3


class Assimilate(IntEnum):
    """workunit.assimilate_state"""

    INIT = 0
    READY = 1
    DONE = 2


class Delete(IntEnum):
    """file_delete_state"""

    INIT = 0
    READY = 1
    DONE = 2


class Error(IntFlag):
    """workunit.error_mask"""

    COULDNT_SEND = 1
    TOO_MANY_ERRORS = 2
    TOO_MANY_TOTAL = 8
    CANCELLED = 16


FILES_UPLOADED = 5
"""A result's state on the client when all went well."""
ABORTED_BY_USER = 203
"""Exit status of a task that somebody aborted on the client: no error of the workunit."""
VALIDATE_AGAIN = 3
"""Exit status of a validation script that could not decide now."""
NO_NEW_RESULTS = 2
"""workunit.transitioner_flags of one that is assigned: the scheduler makes its results."""
NEVER = 2**31 - 1
"""workunit.transition_time when nothing is to come."""
ASSIGN_HOST, ASSIGN_USER = 1, 2
"""assignment.target_type"""
BANNED = -1
"""host.max_results_day of a host that the scheduler turns away."""
