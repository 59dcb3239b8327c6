"""The last lines of `run`."""

from __future__ import annotations

from vdisklab.progress import PathDropped
from vdisklab.views.run import left_out_sentences


def test_a_path_that_was_not_measured_is_named_as_the_user_typed_it() -> None:
    dropped = PathDropped("nbd:at=shelf/raw/none", "target shelf is down", "start the server")
    assert list(left_out_sentences([dropped])) == [
        "Not measured: shelf/raw/none: target shelf is down; start the server."
    ]
