"""Which parts the running kernel has, built in or as a module that it could load."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path

from vdisklab.host.kernelfile import read_text
from vdisklab.host.medium import SYSTEM


class KernelParts:
    """The kernel seen through /proc and its modules' directory, read once."""

    def __init__(self, root: Path = SYSTEM) -> None:
        self._root = root

    def has_filesystem(self, name: str) -> bool:
        """True when `name` can be mounted, after loading a module if need be."""
        listed = (read_text(self._root / "proc/filesystems") or "").split()
        return name in listed or self.has_module(name)

    def has_driver(self, name: str, module: str) -> bool:
        """True when /proc/devices lists `name`, or its module could be loaded."""
        listed = (read_text(self._root / "proc/devices") or "").split()
        return name in listed or self.has_module(module)

    def has_module(self, name: str) -> bool:
        """True for a module that is loaded, built in, or there to be loaded."""
        return name.replace("-", "_") in self._modules

    @cached_property
    def _modules(self) -> frozenset[str]:
        release = read_text(self._root / "proc/sys/kernel/osrelease") or ""
        directory = self._root / "lib/modules" / release
        texts = [read_text(directory / name) or "" for name in ("modules.dep", "modules.builtin")]
        found = re.findall(r"([^/\s]+)\.ko(?:\.\w+)?(?=:|$)", "\n".join(texts), re.MULTILINE)
        loaded = self._root / "sys/module"
        names = [*found, *(path.name for path in loaded.iterdir())] if loaded.is_dir() else found
        return frozenset(name.replace("-", "_") for name in names)
