"""Each platform that the core names has its file here."""

from __future__ import annotations

from pathlib import Path

import pytest

from vdisklab.path.platforms import Platform
from vdisklab.platforms.registry import dialect_of, dialects


@pytest.mark.parametrize("platform", Platform)
def test_a_row_names_a_file_that_reads_writes_and_changes(platform: Platform) -> None:
    dialect = dialect_of(platform)
    assert dialect.cache_modes
    assert dialect.forms
    assert dialect_of(platform) is dialects()[Platform(platform.module)]
    page = (Path(__file__).parents[3] / "docs" / "platforms.md").read_text()
    assert f"| {Platform(platform.module).full_name}" in page
