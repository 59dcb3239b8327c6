"""The image of a guest of the user's own, and the command line that boots it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from vdisklab.campaign.user_guest import (
    requested_guest,
    require_unchanged,
    user_boot,
)
from vdisklab.errors import HostError, PlanError
from vdisklab.guest.qemu.command_line import (
    Channels,
    FirmwareFiles,
    GuestConfig,
    UserBoot,
    build_argv,
)
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger, pending
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.build import build_plan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.guest import Firmware, GuestPlan, SystemBus, UserGuest
from vdisklab.plan.plan_file import parse_plan_file, request_alike
from vdisklab.plan.profile import MeasurementPlan, Profile
from vdisklab.plan.settings import Request
from vdisklab.storage.site import open_site
from vdisklab.value import replace

HOST = LocalHost()
PROFILE = Profile("tiny", "Tiny", (MeasurementPlan("one", "fio", {"rw": "read"}),))
needs_qemu_img = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="needs qemu-img")


def bootable(tmp_path: Path, name: str = "guest.raw") -> Path:
    image = tmp_path / name
    image.write_bytes(b"\0" * 510 + b"\x55\xaa" + b"\0" * (1 << 20))
    return image


def inspected_in(image: Path) -> UserGuest:
    guest = requested_guest(HOST, Request(guest_image=image))
    assert guest is not None
    return guest


def argv(boot: UserBoot, machine: str = "q35") -> str:
    config = GuestConfig("qemu", "m", machine, Accelerator.TCG, GuestPlan(), boot)
    return " ".join(build_argv(config, Channels(3, 4, 5, Path("/w/console"))))


class TestCommandLine:
    def test_bios_speaks_on_the_serial_port(self) -> None:
        arguments = argv(UserBoot(Path("/w/a,b.qcow2"), SystemBus.VIRTIO))
        assert "-machine q35,graphics=off" in arguments
        assert "file.filename=/w/a,,b.qcow2" in arguments
        assert "virtio-blk-pci,drive=system,serial=vdisklab-system,bootindex=0" in arguments
        assert "-kernel" not in arguments

    @pytest.mark.parametrize(
        ("bus", "device"),
        [(SystemBus.SATA, "ide-hd,bus=ide.1,drive=system"), (SystemBus.NVME, "nvme,drive=system")],
    )
    def test_its_bus(self, bus: SystemBus, device: str) -> None:
        assert device in argv(UserBoot(Path("/w/o"), bus))

    def test_uefi_reads_its_code_and_writes_a_copy_of_its_variables(self) -> None:
        files = FirmwareFiles(Path("/f/code.fd"), Path("/w/vars.fd"))
        arguments = argv(UserBoot(Path("/w/o"), SystemBus.VIRTIO, files))
        assert "-machine q35,pflash0=firmware,pflash1=variables" in arguments
        assert "filename=/f/code.fd,node-name=firmware,read-only=on" in arguments
        assert "filename=/w/vars.fd,node-name=variables" in arguments


@needs_qemu_img
class TestImage:
    def test_an_overlay_takes_the_writes_and_is_gone_afterwards(self, tmp_path: Path) -> None:
        image = bootable(tmp_path)
        inspected = inspected_in(image)
        assert inspected.format == "raw"
        with (
            open_ledger(tmp_path / "state") as ledger,
            open_site(HOST, ledger, tmp_path) as site,
        ):
            with user_boot(site, inspected, "system-1") as boot:
                assert str(boot.overlay) in [entry.name for entry in pending(ledger.path)]
                before = image.read_bytes()
                HOST.run("qemu-io", "-c", "write -P 7 0 64k", boot.overlay)
                assert image.read_bytes() == before
            assert not boot.overlay.exists()

    def test_a_change_meanwhile_is_told(self, tmp_path: Path) -> None:
        image = bootable(tmp_path)
        inspected = inspected_in(image)
        require_unchanged(inspected)
        os.utime(image, ns=(1, 1))
        with pytest.raises(HostError, match="changed during the campaign"):
            require_unchanged(inspected)
        assert inspected_in(image).state != inspected.state

    @pytest.mark.parametrize(
        ("content", "problem"),
        [
            (None, "cannot be read: No such file"),
            (b"hello\n", "is not a disk image"),
            (b"", "not a disk"),
        ],
    )
    def test_what_is_no_image(self, tmp_path: Path, content: bytes | None, problem: str) -> None:
        image = tmp_path / "guest.img"
        if content is not None:
            image.write_bytes(content)
        with pytest.raises(HostError, match=problem) as caught:
            requested_guest(HOST, Request(guest_image=image))
        assert str(image) in str(caught.value)

    def test_a_damaged_image_is_one_sentence(self, tmp_path: Path) -> None:
        image = tmp_path / "guest.qcow2"
        image.write_bytes(b"QFI\xfb" + b"\xff" * 2000)
        with pytest.raises(HostError) as caught:
            requested_guest(HOST, Request(guest_image=image))
        assert "guest.qcow2" in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_what_is_said_of_it(self, tmp_path: Path) -> None:
        program = tmp_path / "diskspd.exe"
        program.write_bytes(b"MZ")
        inspected = requested_guest(
            HOST,
            Request(
                guest_image=bootable(tmp_path), guest_bus=SystemBus.SATA, guest_boot=5.0,
                diskspd=program,
            ),
        )  # fmt: skip
        assert inspected is not None
        assert (inspected.firmware, inspected.bus, inspected.boot_seconds) == (
            Firmware.BIOS,
            SystemBus.SATA,
            5.0,
        )
        with pytest.raises(HostError, match="not a Windows program"):
            requested_guest(HOST, Request(guest_image=inspected.image, diskspd=inspected.image))


class TestPlan:
    OWN = UserGuest(Path("/srv/debian.qcow2"), "qcow2", "7 bytes of 9")

    def test_it_is_part_of_what_identifies_a_plan(self) -> None:
        request = Request(paths=("raw/none",), guest_image=self.OWN.image)
        plan = build_plan(request, Capabilities(), PROFILE, (), self.OWN)
        assert plan.as_json()["guest"]["image"] == "/srv/debian.qcow2"
        ours = build_plan(Request(paths=("raw/none",)), Capabilities(), PROFILE)
        assert "image" not in ours.as_json()["guest"]
        assert ours.fingerprint != plan.fingerprint

    def test_how_it_starts_is_stored_and_does_not_identify_a_plan(self) -> None:
        request = Request(paths=("raw/none",), guest_image=self.OWN.image)
        plan = build_plan(request, Capabilities(), PROFILE, (), self.OWN)
        patient = replace(self.OWN, boot_seconds=600.0, diskspd=Path("/srv/diskspd.exe"))
        waiting = build_plan(request, Capabilities(), PROFILE, (), patient)
        assert waiting.fingerprint == plan.fingerprint
        assert plan.stored_json() == plan.as_json() | {"rounds": plan.rounds}
        assert waiting.stored_json()["guest"] == plan.as_json()["guest"]
        again = request_alike(waiting.stored_json(), Request)
        assert (again.guest_boot, again.diskspd) == (600.0, Path("/srv/diskspd.exe"))

    @pytest.mark.parametrize(
        ("asked", "problem"),
        [
            (
                Request(guest_firmware=Firmware.UEFI),
                "--guest-firmware has no effect",
            ),
            (Request(diskspd=Path("d")), "--diskspd has no effect"),
            (Request(guest_image=Path("i"), guest_kernel="/k"), "boots its own kernel"),
            (Request(guest_image=Path("i"), guest_boot=0.0), "--guest-boot is 0 s"),
        ],
    )
    def test_what_does_not_go_together(self, asked: Request, problem: str) -> None:
        with pytest.raises(PlanError, match=problem):
            build_plan(replace(asked, paths=("raw/none",)), Capabilities(), PROFILE)

    def test_in_a_plan_file(self) -> None:
        text = '[guest]\nimage = "d.qcow2"\nfirmware = "uefi"\nsystem_bus = "nvme"\nboot = "2m"\n'
        assert parse_plan_file(text, "plan.toml", Request) == Request(
            guest_image=Path("d.qcow2"), guest_firmware=Firmware.UEFI,
            guest_bus=SystemBus.NVME, guest_boot=120.0,
        )  # fmt: skip
