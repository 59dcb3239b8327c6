"""An image to plug."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.guest.fake_qemu import make_image


@pytest.fixture
def image(tmp_path: Path) -> Path:
    return make_image(tmp_path)
