"""What a campaign prepares for its guests, and what it does not where there are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from vdisklab.campaign.context import campaign_guests
from vdisklab.guest.guest_context import GuestContext
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.path.segments import Bus
from vdisklab.progress import silent
from vdisklab.storage.site import open_site

from .plans import a_plan


def test_guests_get_drivers_for_the_buses_of_their_cells() -> None:
    plan = a_plan("raw/none/{virtio,nvme}", "ext4/host", "null/usb")
    assert plan.guest_buses == {Bus.VIRTIO, Bus.NVME, Bus.USB}
    assert a_plan("host", "ext4/host").guest_buses == frozenset()


def test_without_guests_nothing_is_prepared_and_none_may_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        open_ledger(tmp_path / "state") as ledger,
        open_site(LocalHost(), ledger, tmp_path) as site,
    ):
        around = GuestContext(LocalHost(), ledger, tmp_path / "cache", silent)
        accelerator, start = campaign_guests(around, a_plan("host"), site)
        assert accelerator is None
        with pytest.raises(AssertionError):
            start("q35", (), None)
    assert not (tmp_path / "cache").exists()
