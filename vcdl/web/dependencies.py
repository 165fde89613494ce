"""Give FastAPI's request handlers the service and the caller, after a check of the caller's role."""

from typing import Annotated

from fastapi import Depends, Request

from vcdl.web.service import Forbidden, WebService
from vcdl.web.sessions import Caller, Role


async def service_of(request: Request) -> WebService:
    """Return the service that received a request; a dependency for FastAPI."""
    service: WebService = request.app.state.service
    return service


async def caller_of(request: Request) -> Caller:
    """Return the caller whom the guard has found for a request; a dependency for FastAPI."""
    caller: Caller = request.state.caller
    return caller


ServiceHere = Annotated[WebService, Depends(service_of)]
CallerHere = Annotated[Caller, Depends(caller_of)]


def needs(caller: Caller, role: Role) -> Caller:
    """Check that a caller has at least a role, and return the caller.

    Raises:
        Forbidden: The caller's role is lower.
    """
    if caller.role < role:
        raise Forbidden(f"{caller.name} may only read here: this requires the role {role.name.lower()}")
    return caller


async def _submitter(caller: CallerHere) -> Caller:
    return needs(caller, Role.SUBMITTER)


SubmitterHere = Annotated[Caller, Depends(_submitter)]
"""The caller, after a check that their role is submitter or higher."""
