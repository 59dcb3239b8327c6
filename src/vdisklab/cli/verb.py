"""One verb of the command line: completes what its errors say."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

from vdisklab.cli.named import Named
from vdisklab.errors import VdisklabError
from vdisklab.path.disk_path import PathSyntaxError


class Verb(TyperCommand):
    """A verb whose errors name the database and campaigns that the user named."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer's context has moved between versions
        """Runs the verb. Raises VdisklabError, among others."""
        db = ctx.params.get("db")
        try:
            return super().invoke(ctx)
        except VdisklabError as error:
            found = error
            if isinstance(error, PathSyntaxError):
                from vdisklab.services.free_names import free_name  # noqa: PLC0415 - for errors only

                found = free_name(error, db) or error
            named = Named.of(db, ctx.params.get("campaign"))
            found.args = (named.in_text(str(found)),)
            found.hint = None if found.hint is None else named.in_text(found.hint)
            raise found from error.__cause__
