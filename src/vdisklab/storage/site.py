"""Where stacks are built: a site records whatever it creates, and removes it again.

Checks that the host has enough disk space and memory.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from vdisklab import errors
from vdisklab.errors import HostError
from vdisklab.host import blockdevice
from vdisklab.host.answering import answered
from vdisklab.host.command import Completed, Host, PathArg, require_programs
from vdisklab.host.ledger import NEEDED, PROGRAM_MARK, Entry, Kind, Ledger
from vdisklab.host.mounts import free_bytes, mount_at
from vdisklab.host.private_directory import PrivateDirectory, opened_private
from vdisklab.host.safe_places import open_file, require_safe_work
from vdisklab.host.waiting import interrupts_held, wait_until
from vdisklab.host.whereabouts import boot_id, inode_noted, whereabouts
from vdisklab.storage.undo import (
    NOT_SEEN_YET,
    SIMPLE_UNDO,
    WHEREABOUTS,
    Removable,
    Undo,
    noted_directories,
    undo_where_it_is,
)
from vdisklab.units import MIB, format_bytes
from vdisklab.value import Value, field, replace

_Seen = TypeVar("_Seen")

# QEMU's own memory beside its guest's: block layer, device models, translated code.
_QEMU_BYTES = 96 * MIB


class Site(Value):
    """Everything that a layer needs for building. `directory` is private and removed at the end.

    As root it is a name that root alone can change. Where another user, such as the caller of sudo,
    can change the name under which the directory was made, that is a second one; see `held`.

    Layers change the host through `run` and `run_uninterrupted`, and read its state through
    `observe`. So a `PlannedSite` can record the commands of a build.
    """

    host: Host
    ledger: Ledger
    directory: Path
    private: PrivateDirectory | None = None
    made: dict[str, str] = field(default_factory=dict)
    """The second names of directories -> the names under which they were made."""

    @property
    def label(self) -> str:
        """The label of vdisklab's file systems: 12 characters, the maximum for XFS."""
        return f"vdl-{self.ledger.run_id}"

    def unique(self, name: str) -> str:
        """A name for a group, pool or array, unique on this host: it contains the run's id."""
        return f"vdl_{self.ledger.run_id}_{name.replace('-', '_')}"

    @contextmanager
    def tracked(
        self, kind: Kind | Removable, name: str | os.PathLike[str], **detail: str
    ) -> Iterator[Entry]:
        """Records a thing in the ledger before the body creates it, and removes the thing at the
        end.

        Raises DirtyHostError if it cannot be removed; then the ledger keeps it for `clean`. If
        something that the body created could not be removed, this thing stays, too: the file below
        a mounted device must not be removed. What stays on a target (LeftOnTargetError) lies on
        nothing of this host's.
        """
        named, undo = _removal(kind)
        inode = inode_noted(Path(name)) if named == Kind.LOOP else {}
        entry = self.ledger.add(named, name, **inode, **detail)
        with self.undone(entry, undo):
            yield entry

    @contextmanager
    def undone(self, entry: Entry, undo: Undo) -> Iterator[None]:
        """Removes a thing that is in the ledger at the end; see `tracked`."""
        try:
            yield
        except errors.LeftOnTargetError:
            if not self._is_needed(entry):
                self._undo(entry, undo)
            raise
        except errors.DirtyHostError:
            raise
        except BaseException:
            self._undo(entry, undo)
            raise
        self._undo(entry, undo)

    @contextmanager
    def held(self, directory: Path) -> Iterator[Path]:
        """The name under which a directory of the run, in the ledger and just made, is used.

        As root no other user can change where it leads, and the caller of sudo cannot either.
        Raises OSError and HostError.
        """
        with ExitStack() as stack:
            private = answered(
                directory.parent, lambda: stack.enter_context(opened_private(directory))
            )
            yield stack.enter_context(self._held(private))

    @contextmanager
    def _held(self, private: PrivateDirectory) -> Iterator[Path]:
        directory, place = private.path, private.roots_place
        noted = answered(directory, lambda: whereabouts(directory, private.descriptor))
        self.ledger.learn(Kind.DIRECTORY, directory, **{WHEREABOUTS: noted})
        if place is None:
            yield directory
            return
        with self.tracked(Kind.DIRECTORY, place), self.tracked(Kind.MOUNT, place):
            try:
                place.mkdir(mode=0o700)
                answered(directory, lambda: private.mount_at(place))
            except OSError as error:
                raise HostError(
                    f"the user who called sudo could move {directory}, and root cannot hold it "
                    f"at {place}: {error.strerror}",
                    hint="name a directory in one of root's, such as /var/tmp",
                ) from error
            self.note_mount(place)
            self.made[str(place)] = str(directory)
            yield place

    def named(self, text: str) -> str:
        """A text for people, with directories under the names that they know."""
        for used, directory in sorted(self.made.items(), reverse=True):  # longer names first
            text = text.replace(used, directory)
        return text

    def note_mount(self, mountpoint: Path) -> None:
        """Notes how a mount, which is in the ledger, is found wherever its directory is moved."""
        mount = mount_at(mountpoint)
        if mount is not None:
            self.ledger.learn(Kind.MOUNT, mountpoint, **mount.identity, boot=boot_id())

    def tracked_on(
        self, members: Sequence[Path], kind: Removable, name: str
    ) -> AbstractContextManager[Entry]:
        """`tracked` for a thing that is removed from the devices that it lies on alone."""
        devices = self.observe(lambda: blockdevice.record_devices(members), planned="")
        return self.tracked(kind, name, devices=devices)

    @contextmanager
    def secret(self, file: Path) -> Iterator[None]:
        """A file with a new random key, readable by its owner only, while the context is open."""
        with self.tracked(Kind.FILE, file):
            # 256 bits in hexadecimal: QEMU's LUKS wants text.
            self.write_private(file, secrets.token_hex(32))
            yield

    def write_private(self, file: Path, text: str) -> None:
        """Writes a new file that only its owner can read."""
        with os.fdopen(self._created(file), "w") as opened:
            opened.write(text)

    def new_file(self, file: Path) -> None:
        """Makes a file that a program then fills: a new one, behind no link, of its owner's alone.

        Raises HostError, also if the file exists.
        """
        os.close(self._created(file))

    def _created(self, file: Path) -> int:
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
            return answered(file.parent, lambda: open_file(file, flags))
        except OSError as error:
            self.require_in_place()
            raise HostError(
                f"{file} cannot be created: {error.strerror}", hint="name another --dir"
            ) from error

    def moved(self) -> str | None:
        """What happened to the directory, as a sentence; None if it is where it was made."""
        return None if self.private is None else self.private.moved()

    def require_in_place(self) -> None:
        """Raises HostError if the directory was moved, removed or replaced."""
        if self.private is not None:
            self.private.require_in_place()

    def run(self, *argv: PathArg, timeout: float = 60.0) -> Completed:
        """Runs a program that changes this host; see `Host.run`."""
        return self.host.run(*argv, timeout=timeout)

    @property
    def mark(self) -> str:
        """A variable in the environment of the programs that `run_marked` starts."""
        return f"{PROGRAM_MARK}{self.ledger.run_id}"

    def run_marked(
        self,
        *argv: PathArg,
        timeout: float,
        stdin: str | None = None,
        watch: Callable[[int], None] | None = None,
    ) -> Completed:
        """Runs a long-running program that leaves no daemon; see `Host.run`.

        A SIGKILL of vdisklab does not end such a program, nor the processes of fio's jobs. `clean`
        finds them all by their environment.
        """
        require_programs(self.host, os.fspath(argv[0]))
        marked = ("env", self.mark, *argv)
        try:
            return self.host.run(*marked, timeout=timeout, stdin=stdin, watch=watch)
        except errors.CommandError as error:
            raise errors.CommandError(error.argv[2:], error.status, error.stderr) from error
        except errors.CommandTimeoutError as error:
            plain = error.message.replace(f"env {self.mark} ", "")
            raise errors.CommandTimeoutError(plain, hint=error.hint) from error

    def run_uninterrupted(self, *argv: PathArg, timeout: float = 60.0) -> Completed:
        """Runs a program with signals blocked; see `Host.run`.

        If it were killed, its daemon could still create objects after the cleanup.
        """
        with interrupts_held():
            return self.run(*argv, timeout=timeout)

    def observe(self, look: Callable[[], _Seen], *, planned: _Seen) -> _Seen:  # noqa: ARG002
        """The result of `look()`, which must not change the host.

        `PlannedSite` returns `planned` instead.
        """
        return look()

    def check(self, look: Callable[[], object]) -> None:
        """Calls `look`, which changes nothing and raises an error, unless this is only planned."""
        self.observe(look, planned=None)

    def read_back(self, look: Callable[[], Mapping[str, str]]) -> Mapping[str, str]:
        """The properties of a thing that was built; none if it is only planned."""
        return self.observe(look, planned={})

    @contextmanager
    def mount_point(self, name: str) -> Iterator[Path]:
        """A new directory of the site, for a mount in the body; both are removed at the end."""
        directory = self.directory / name
        with self.tracked(Kind.DIRECTORY, directory):
            self.run("mkdir", directory)
            with self.tracked(Kind.MOUNT, directory):
                yield directory

    def node(self, link: Path, seconds: float) -> Path:
        """The device behind a link that udev makes, perhaps a moment later."""

        def there() -> Path:
            wait_until(link.exists, timeout=seconds, what=f"device {link}")
            return link.resolve()

        return self.observe(there, planned=link)

    def _undo(self, entry: Entry, undo: Undo) -> None:
        """Removes a thing and its entry in the ledger, with signals blocked.

        Otherwise an interrupt could leave a half-removed thing that is no longer in the ledger.
        """
        with interrupts_held():
            try:
                undo_where_it_is(self.host, self._here(entry), undo, self._directories())
            except errors.DirtyHostError:
                raise
            except (errors.VdisklabError, OSError) as error:
                reason = getattr(error, "strerror", None) or error
                raise errors.DirtyHostError(
                    f"the {entry.kind} {entry.name} cannot be removed: {reason}",
                    hint="run `vdisklab clean`",
                ) from error
            self.ledger.strike(entry)

    def _is_needed(self, entry: Entry) -> bool:
        """True for a directory with the secret of a server on which something stays."""
        files = filter(None, (each.detail.get(NEEDED) for each in self.ledger.entries))
        above = {each for file in files for name in (file, self.named(file))
                 for each in Path(name).parents}  # fmt: skip
        return Path(entry.name) in above

    def _here(self, entry: Entry) -> Entry:
        """An entry with all that is known, under the name that the site's directory has now."""
        entries = {(each.kind, each.name): each for each in self.ledger.entries}
        entry = entries.get((entry.kind, entry.name), entry)
        name = Path(entry.name)
        if self.private is None or not name.is_relative_to(self.private.path):
            return entry
        place = self.private.place
        if place is None or self.private.moved() is None:
            return entry
        return replace(entry, name=os.fspath(place / name.relative_to(self.private.path)))

    def _directories(self) -> list[Entry]:
        """The work directories in the ledger, by the names that were noted."""
        return noted_directories(self.ledger.entries)


class PlannedSite(Site):
    """A site on which nothing is built: `host` records the programs, and no state is read."""

    def run_marked(
        self,
        *argv: PathArg,
        timeout: float,
        stdin: str | None = None,
        watch: Callable[[int], None] | None = None,
    ) -> Completed:
        """Records the program as users would call it."""
        return self.host.run(*argv, timeout=timeout, stdin=stdin, watch=watch)

    @contextmanager
    def tracked(
        self, kind: Kind | Removable, name: str | os.PathLike[str], **detail: str
    ) -> Iterator[Entry]:
        """Returns an entry without recording it."""
        yield Entry(0, _removal(kind)[0], os.fspath(name), detail)

    @contextmanager
    def held(self, directory: Path) -> Iterator[Path]:
        """The directory under its own name."""
        yield directory

    def note_mount(self, mountpoint: Path) -> None:
        """Notes nothing."""

    def write_private(self, file: Path, text: str) -> None:
        """Writes nothing."""

    def new_file(self, file: Path) -> None:
        """Makes nothing."""

    def observe(self, look: Callable[[], _Seen], *, planned: _Seen) -> _Seen:  # noqa: ARG002
        """Returns `planned`, because nothing was built."""
        return planned


def _removal(kind: Kind | Removable) -> tuple[str, Undo]:
    """A kind of thing as the ledger names it, and the function that removes one."""
    return (kind.kind, kind.undo) if isinstance(kind, Removable) else (kind, SIMPLE_UNDO[kind])


@contextmanager
def open_site(host: Host, ledger: Ledger, work: Path) -> Iterator[Site]:
    """A site in the work directory `work`, which must exist and be writable."""
    directory = site_directory(work.absolute(), ledger.run_id)
    require_safe_work(work)
    unopened = Site(host, ledger, directory)
    entry = ledger.add(Kind.DIRECTORY, directory, **NOT_SEEN_YET)
    remove = SIMPLE_UNDO[Kind.DIRECTORY]
    with ExitStack() as stack:
        try:
            directory.mkdir(mode=0o700)
            private = stack.enter_context(opened_private(directory))
        except OSError as error:
            with unopened.undone(entry, remove):
                raise HostError(
                    f"the work directory {work} cannot be used: {error.strerror}",
                    hint="name another with --dir",
                ) from error
        site = replace(unopened, private=private)
        with site.undone(entry, remove), site._held(private) as used:
            site = replace(site, directory=used)
            with site.tracked(Kind.PROCESS, site.mark):
                try:
                    yield site
                except errors.VdisklabError as error:
                    error.reword(site.named)
                    raise


def site_directory(work: Path, run_id: str) -> Path:
    """The private directory of one run."""
    return work / f"vdisklab-{run_id}"


def require_room(
    directory: Path, needed: int, what: str, way: str = "fewer paths, or another --dir"
) -> None:
    """Raises HostError when less than `needed` bytes are free in a directory."""
    free = free_bytes(directory)
    if needed > free:
        raise HostError(
            f"{what} needs {format_bytes(needed)}, and {directory} has {format_bytes(free)} free",
            hint=f"choose a smaller --size, {way}",
        )


def require_memory(needed: int, available: int, what: str) -> None:
    """Raises HostError if `needed` bytes are more than `available`; 0 means unknown."""
    if 0 < available < needed:
        raise HostError(
            f"{what} needs {format_bytes(needed)} of memory for tmpfs, but "
            f"{format_bytes(available)} is available",
            hint="choose a smaller --size, or fewer paths on tmpfs",
        )


def require_guest_memory(needed: int, total: int) -> None:
    """Raises HostError if a guest's memory is more than the host has; `total` 0 is unknown."""
    if 0 < total < needed:
        raise HostError(
            f"a guest with {format_bytes(needed)} of memory does not fit into this host's "
            f"{format_bytes(total)}",
            hint="choose a smaller --guest-memory",
        )


def guests_that_fit(memory: int, available: int) -> int:
    """The number of guests with `memory` bytes that fit into the `available` ones."""
    return available // memory_of_guests(memory, 1)


def memory_of_guests(memory: int, guests: int) -> int:
    """The host memory in bytes that `guests` guests of `memory` bytes need, with their QEMUs."""
    return guests * (memory + _QEMU_BYTES)


def require_memory_for_all(memory: int, guests: int, available: int) -> None:
    """Raises HostError if several guests do not fit into `available` bytes; 0 means unknown."""
    fitting = guests_that_fit(memory, available)
    if guests > 1 and available > 0 and fitting < guests:
        raise HostError(
            f"{guests} guests with {format_bytes(memory)} of memory need "
            f"{format_bytes(memory_of_guests(memory, guests))} with their QEMUs, but "
            f"{format_bytes(available)} is available",
            hint=f"measure at most {fitting} guests, or choose a smaller --guest-memory"
            if fitting
            else "choose a smaller --guest-memory",
        )
