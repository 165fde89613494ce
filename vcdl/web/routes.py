"""Serve the pages of the service, and handle their forms."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from vcdl.errors import VcdlError
from vcdl.report.movie_files import svg_of
from vcdl.run.reading import read_movie
from vcdl.web.api import Cursor, State
from vcdl.web.catalogue import PAGE
from vcdl.web.dependencies import CallerHere, ServiceHere, SubmitterHere, needs
from vcdl.web.guard import too_many
from vcdl.web.live import MOST_WATCHERS, LivePages, Parts, while_valid
from vcdl.web.overview import PageSection, fleets_page, hosts_page, money_words, server_page
from vcdl.web.served_commands import CommandRequest, ServiceBusy
from vcdl.web.service import Forbidden, WebService
from vcdl.web.sessions import COOKIE, OWNER, SESSION_S, Caller, Role, is_same

router = APIRouter(include_in_schema=False)
Chosen = Annotated[Sequence[str], Query(max_length=12)]
Axis = Literal["time", "epoch"]
Notice = Annotated[str, Query(max_length=40)]

_drawing = threading.Lock()
"""Lock that lets one movie be drawn at a time: each takes seconds of processor time and some 300 MB for 100 000
subtasks."""
_DRAWING_WAIT_S = 5.0
"""Seconds for which a request waits for `_drawing` before it fails, since it occupies a thread meanwhile."""

_OVERVIEWS: Mapping[str, Callable[[WebService, str], list[PageSection]]] = {
    "Hosts": lambda service, job: hosts_page(service.catalogue, job),
    "Server": lambda service, _: server_page(service.catalogue, service.live.watchers),
    "Fleets": lambda service, _: fleets_page(service.fleets),
}


@router.get("/")
def jobs(
    request: Request,
    service: ServiceHere,
    after: Cursor = "",
    state: State = "",
    search: Annotated[str, Query(max_length=200)] = "",
    sort: Literal["", "measure", "newest"] = "",
) -> Response:
    visits = is_visitor(request)
    asked = {"state": state, "search": "" if visits else search, "sort": sort}
    return _render_page(
        request,
        "jobs.html",
        lambda: service.pages.list_parts(service.catalogue.page(after, PAGE, **asked), visits),
        here="/",
        after=after,
        asked=asked,
        money="" if visits else money_words(service.fleets),
    )


@router.get("/compare")
def compare(request: Request, service: ServiceHere, job: Chosen = (), by: Axis = "epoch") -> Response:
    names = [*dict.fromkeys(job)]
    if len(names) < 2:
        return error_page(request, 422, "Nothing to compare", "choose at least two jobs in the list.")
    with ExitStack() as unchanged:  # lock the views in one order: two requests in different orders could deadlock
        views = {name: unchanged.enter_context(service.catalogue.view(name).current()) for name in sorted(names)}
        shown = service.pages.comparison({name: views[name].standing for name in names}, by == "epoch")
    return _page(request, "compare.html", names=names, by=by, **shown)


@router.get("/hosts")
@router.get("/server")
@router.get("/fleets")
def overview(request: Request, service: ServiceHere, job: Annotated[str, Query(max_length=64)] = "") -> Response:
    title = request.scope["path"][1:].capitalize()
    words = {"title": title, "here": request.scope["path"]}
    return _render_page(
        request, "overview.html", lambda: service.pages.overview_parts(_OVERVIEWS[title](service, job)), **words
    )


@router.get("/jobs/{name}")
def job(request: Request, service: ServiceHere, name: str, notice: Notice = "", by: Axis = "time") -> Response:
    visits = is_visitor(request)
    failure = "" if visits else service.submissions.failure(name)
    if failure or service.submissions.is_beginning(name):
        return _page(request, "beginning.html", name=name, failure=failure)
    service.catalogue.folder(name)
    said = {"stop": "It was asked to stop, and will pause within a few seconds.", "resume": "It continues."}

    def parts() -> Parts:
        with service.catalogue.view(name).current() as view:
            return service.pages.job_parts(view, visits, by == "epoch")

    return _render_page(request, "job.html", parts, name=name, by=by, notice="" if visits else said.get(notice, ""))


@router.get("/jobs/{name}/movie")
def movie(request: Request, service: ServiceHere, caller: CallerHere, name: str) -> Response:
    folder = service.catalogue.folder(name)
    if not _drawing.acquire(timeout=_DRAWING_WAIT_S):
        raise ServiceBusy("the service is drawing another movie: try again in a minute")
    try:
        svg = svg_of(read_movie(folder, name))
    finally:
        _drawing.release()
    # The movie's style is in the file, as in a README; it may load nothing else.
    policy = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
    page = _page(request, "movie.html", name=name, svg=svg)
    page.headers.update(policy)
    return page


@router.post("/jobs/{name}/{action}")
async def control(request: Request, service: ServiceHere, caller: SubmitterHere, name: str, action: str) -> Response:
    await _read_form(request, caller)
    actions = {"stop": service.stop, "resume": service.resume}
    if action not in actions:
        return Response(status_code=404)
    await run_in_threadpool(actions[action], caller, name)
    return RedirectResponse(f"{service.base}/jobs/{quote(name)}?notice={action}", 303)


@router.post("/hosts/{host}/{action}")
async def control_host(request: Request, service: ServiceHere, caller: CallerHere, host: str, action: str) -> Response:
    await _read_form(request, needs(caller, Role.OPERATOR))
    if action not in ("ban", "unban"):
        return Response(status_code=404)
    done = await run_in_threadpool(service.run_command, caller, CommandRequest(f"hosts {action}", [host]))
    if done.exit_code:
        return error_page(request, 409, f"{host[:64]} is not changed", done.errors)
    return RedirectResponse(f"{service.base}/hosts", 303)


@router.get("/login")
def login_page(request: Request, service: ServiceHere, next: str = "/", code: str = "") -> Response:
    if not code:
        return _page(request, "login.html", next=_own_path(next), error="")
    # A link can only log in the owner. Do not count a wrong code as a failed login: any web page can make a browser
    # request such a link, and would lock its user out.
    return _finish_login(request, service, OWNER if is_same(code, service.code) else None, next)


@router.post("/login")
async def login(request: Request, service: ServiceHere) -> Response:
    form = await _form(request)
    token, then = form.get("token", ""), form.get("next", "/")
    if is_same(token, service.code):
        return _finish_login(request, service, OWNER, then)
    address = request.client.host if request.client else ""
    caller, wait_s = service.of_token(token, address)
    return too_many(wait_s) if wait_s > 0 else _finish_login(request, service, caller.id if caller else None, then)


@router.post("/logout")
async def logout(request: Request, service: ServiceHere, caller: CallerHere) -> Response:
    await _read_form(request, caller)
    answer = RedirectResponse(f"{service.base}/login", 303)
    answer.delete_cookie(COOKIE, path=f"{service.base}/")
    return answer


def _finish_login(request: Request, service: WebService, subject: str | None, then: str) -> Response:
    if subject is None:
        words = "This token is unknown, expired or revoked; the address that `vcdl serve` printed ends with it."
        return _page(request, "login.html", status=401, next=_own_path(then), error=words)
    # A redirect would still count as a request from the site with the link, so the browser would not send the strict
    # cookie. Instead, logged_in.html forwards the browser by a refresh of its own.
    answer = _page(request, "logged_in.html", next=_own_path(then))
    answer.set_cookie(
        COOKIE,
        service.sessions.begin(subject),
        max_age=int(SESSION_S),
        path=f"{service.base}/",
        httponly=True,
        samesite="strict",
        secure=service.secure_cookies,
    )
    return answer


def _own_path(path: str) -> str:
    """Return a path to which a login may forward the browser: the given one if it is local, otherwise `/`."""
    # Browsers take `//host` and `/\host` for other sites, to which a login must never forward.
    is_own = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_own else "/"


async def _form(request: Request) -> dict[str, str]:
    text = (await request.body()).decode("utf-8", "replace")
    return {key: values[0] for key, values in parse_qs(text, max_num_fields=20).items()}


async def _read_form(request: Request, caller: Caller) -> dict[str, str]:
    """Return the fields of a form, after checking that it has the CSRF secret of the caller's session.

    Raises:
        Forbidden: The form has no secret or a wrong one, so no page of this session has sent it.
    """
    form = await _form(request)
    if not caller.csrf or not is_same(form.get("csrf", ""), caller.csrf):
        raise Forbidden("this form does not belong to your session: reload the page")
    return form


def is_visitor(request: Request) -> bool:
    """Return whether the caller is not logged in; the guard has then checked that the page is public."""
    return getattr(request.state, "caller", None) is None


def _page(request: Request, template: str, status: int = 200, **words: Any) -> HTMLResponse:
    page = request.app.state.service.pages.environment.get_template(template)
    return HTMLResponse(page.render(caller=getattr(request.state, "caller", None), **words), status)


def _render_page(request: Request, template: str, render: Callable[[], Parts], **words: Any) -> Response:
    """Return a live page, or the stream of its parts if the page's own script requests that.

    Args:
        request: The request. A script asks for the stream by its Accept header; visitors get none.
        template: File name of the page's template.
        render: Renders the parts; for a stream it is called again as long as the page is open.
        words: Further values for the template.

    Raises:
        ServiceBusy: Too many pages are being watched.
    """
    live: LivePages = request.app.state.service.live
    key = f"{request.scope['path']}?{request.url.query}"
    if is_visitor(request):
        return _page(request, template, parts=render(), **words)
    if "text/event-stream" not in request.headers.get("accept", ""):
        # Reuse the parts that were rendered for watchers if there are any, so that a page that many open is rendered
        # once.
        return _page(request, template, parts=live.parts(key) or render(), **words)
    if live.watchers >= MOST_WATCHERS:  # each holds a connection, and others must stay free to answer requests
        raise ServiceBusy("too many pages are being watched: this page is not updated; reload it later")
    service: WebService = request.app.state.service
    messages = while_valid(live.follow(key, render), lambda: service.is_valid(request.state.caller))
    return StreamingResponse(messages, media_type="text/event-stream")


def error_page(request: Request, status: int, title: str, error: VcdlError | str) -> HTMLResponse:
    """Return the page for an error, with its HTTP status, a short title and the message."""
    return _page(request, "error.html", status=status, title=title, detail=str(error))
