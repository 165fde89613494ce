"""The service below a path of a web server's, such as /lab_vcdl: taken off requests, and put on redirects."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Mounted:
    """An application below a path; whatever is not below it is not there."""

    def __init__(self, app: ASGIApp, path: str) -> None:
        """`path`: begins with a slash and does not end with one."""
        self._app = app
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked, below = scope["path"], f"{self._path}/"
        inner = asked[len(self._path) :] if asked.startswith(below) else "/nothing-here"
        scope = {**scope, "path": inner, "raw_path": inner.encode()}
        prefix = self._path.encode()

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    (name, prefix + value if name == b"location" and value.startswith(b"/") else value)
                    for name, value in message["headers"]
                ]
            await send(message)

        await self._app(scope, receive, answer)
