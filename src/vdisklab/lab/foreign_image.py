"""The lab's system for another architecture than this host's: its packages are unpacked, not run.

No program of such a package runs here, so nothing is configured and nothing compiled: the lab has
what its kernel's package has, and no ZFS. What the packages' scripts would have made, and the lab
needs, is made here.
"""

from __future__ import annotations

import shutil
from importlib import resources
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.guest.image.content import FileTree
from vdisklab.guest.image.debian_packages import download_packages
from vdisklab.guest.image.foreign import foreign_apt
from vdisklab.guest.image.kernel import ModuleTree, module_content
from vdisklab.host.command import Host

_ESSENTIAL = "?essential"
_NOT_READ = ("usr/share/doc", "usr/share/locale", "usr/share/man")


def unpack_lab(
    host: Host, cache: Path, fresh: Path, packages: tuple[str, ...], modules: tuple[str, ...]
) -> None:
    """Makes `fresh/root`, with the kernel and an initial RAM file system in its /boot.

    `modules` are those that find and mount the root file system. Raises HostError without apt,
    network or room.
    """
    status, debs, root = fresh / "status", fresh / "debs", fresh / "root"
    status.touch()
    root.mkdir()
    wanted = (_ESSENTIAL, *packages)
    for file in download_packages(host, wanted, status, debs, foreign_apt(host, cache)):
        host.run("dpkg-deb", "-x", debs / file, root, timeout=600)
        (debs / file).unlink()
    status.unlink()
    shutil.rmtree(debs)
    for place in _NOT_READ:
        shutil.rmtree(root / place, ignore_errors=True)
    _configure(root)
    release = _kernel_release(root)
    host.run("depmod", "-b", root, release, timeout=300)
    _write_initrd(root, release, modules)


def _configure(root: Path) -> None:
    """What base-passwd, and the end of the other kind of build, would have written."""
    for name in ("passwd", "group"):
        shutil.copyfile(root / f"usr/share/base-passwd/{name}.master", root / f"etc/{name}")
    (root / "etc/hostname").write_text("vdisklab-lab\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost vdisklab-lab\n")
    for place in ("vdisklab", "work", "var/lib/vdisklab", "proc", "sys", "dev", "run", "tmp"):
        (root / place).mkdir(parents=True, exist_ok=True)
    (root / "etc/mdadm").mkdir(exist_ok=True)
    (root / "etc/mdadm/mdadm.conf").write_text("AUTO -all\n")
    init = root / "sbin/vdisklab-lab"
    init.write_text(resources.files("vdisklab.lab").joinpath("init.sh").read_text("utf-8"))
    init.chmod(0o755)


def _kernel_release(root: Path) -> str:
    images = sorted((root / "boot").glob("vmlinuz-*"))
    if not images:
        raise HostError("the lab's packages have no kernel", hint="build it again")
    return images[-1].name.removeprefix("vmlinuz-")


def _write_initrd(root: Path, release: str, modules: tuple[str, ...]) -> None:
    """busybox loads the modules in order, mounts the root file system, and goes on there."""
    tree, lines = FileTree(), []
    tree.file("bin/busybox", root / "bin/busybox", executable=True)
    for module in ModuleTree(root / "lib/modules" / release).closure(modules):
        tree.file(f"{module.name}.ko", module_content(module.path))
        lines.append(f"insmod /{module.name}.ko")
    for name in ("dev", "proc", "root"):
        tree.directory(name)
    text = resources.files("vdisklab.lab").joinpath("initrd.sh").read_text("utf-8")
    tree.file("init", text.replace("@MODULES@", "\n".join(lines)).encode(), executable=True)
    tree.write_archive(root / f"boot/initrd.img-{release}")
