"""Answer errors as `application/problem+json` (RFC 9457), with the messages of the command line."""

from http import HTTPStatus

from starlette.responses import JSONResponse

from vcdl.errors import ExitCode, Unavailable, VcdlError
from vcdl.web.catalogue import NoSuchJobError
from vcdl.web.submission_line import LineFull

_STATUS = {
    ExitCode.BAD_JOB: HTTPStatus.UNPROCESSABLE_ENTITY,
    ExitCode.BAD_DATA: HTTPStatus.UNPROCESSABLE_ENTITY,
    ExitCode.BAD_MODEL: HTTPStatus.UNPROCESSABLE_ENTITY,
    ExitCode.SERVICE: HTTPStatus.SERVICE_UNAVAILABLE,
}


def problem(status: int, detail: str, code: ExitCode | None = None) -> JSONResponse:
    """Return the response for an error.

    Args:
        status: The HTTP status.
        detail: The message.
        code: The exit code with which the command line reports this error, or None if it has none.
    """
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": int(status), "detail": detail}
    if code is not None:
        body["exit_code"] = int(code)
    return JSONResponse(body, status, media_type="application/problem+json")


def status_of(error: VcdlError) -> HTTPStatus:
    """Return the HTTP status for an error, from its class or else from its exit code; 409 if neither has one."""
    if isinstance(error, NoSuchJobError):
        return HTTPStatus.NOT_FOUND
    if isinstance(error, LineFull):
        return HTTPStatus.TOO_MANY_REQUESTS
    if isinstance(error, Unavailable):
        return HTTPStatus.SERVICE_UNAVAILABLE
    return _STATUS.get(error.exit_code, HTTPStatus.CONFLICT)
