"""The routes of the pages."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from vdisklab.answers.loading import open_results
from vdisklab.answers.watch import watch
from vdisklab.views.watch import live_page


def routes(db: str | None) -> list[BaseRoute]:
    """All pages about the results at `--db`."""

    def home(request: Request) -> Response:
        del request
        with open_results(db, read_only=True) as results:
            answer = watch(results)
        return HTMLResponse(live_page(answer))

    return [Route("/", home)]
