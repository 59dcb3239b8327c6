"""The commands of qemu-img and qemu-io that make images. Pure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vdisklab.path.disk_path import Image
from vdisklab.path.segments import FORMAT_OPTIONS
from vdisklab.storage.server_url import Url

ImagePlace = Path | Url
"""Where an image is: a file or device of the host, or a server's disk or file."""

_SETTINGS = ("preallocation", "cluster_size", "lazy_refcounts", "compat")
"""Options of the path that qemu-img always gets under the same name, where the format has them."""

_KEY = "key"
"""The id of the secret object that holds an image's key in qemu-img."""


QEMU_IO = ("qemu-io", "-f", "qcow2", "-t", "unsafe")
_MOST_REWRITES = 20_000


def create_command(
    image: Image,
    path: ImagePlace,
    size: int,
    *,
    on_device: bool = False,
    below: Path | None = None,
    key: Path | None = None,
) -> tuple[str, ...]:
    """The qemu-img command that creates an image, with every option of the path.

    The key of an encrypted image is in the file `key`, by default beside the image.

    On a block device all blocks exist already, so `full` only means that the format maps them:
    qemu-img accepts `full` only for regular files, so `metadata` is used. `below` makes an overlay,
    which starts empty. On a server, nothing but the format is preallocated.
    """
    names = FORMAT_OPTIONS[image.format]
    settings = {
        name: names[name].format(value)
        for name in _SETTINGS
        if name in names and (value := image.option(name)) is not None
    }
    if on_device and settings.get("preallocation") == "full":
        settings["preallocation"] = "metadata"
    if isinstance(path, Url) and image.driver == "raw":
        settings.pop("preallocation", None)
    if below is not None or image.compressed:
        settings["preallocation"] = "off"
    if image.compressed:
        settings["compression_type"] = str(image.option("compression"))
    if image.option("extended_l2"):
        settings["extended_l2"] = "on"
    if image.has_data_file and isinstance(path, Path):
        settings["data_file"] = str(data_path(path))
    if image.option("data_file") == "raw":
        settings["data_file_raw"] = "on"
    settings |= _encryption(image)
    options = ",".join(f"{name}={value}" for name, value in sorted(settings.items()))
    flags = ("-o", options) if options else ()
    if image.encrypted and key is None and isinstance(path, Path):
        key = key_path(path)
    secret = () if key is None else _secret(key)
    chain = () if below is None else ("-b", str(below), "-F", image.driver)
    return (
        "qemu-img", "create", "-q", *secret, "-f", image.driver, *flags, *chain,
        path.text if isinstance(path, Url) else str(path), str(size),
    )  # fmt: skip


def format_settings(image: Image) -> tuple[str, ...]:
    """The options of a path's image that its user wrote, as qemu-img takes them: defaults, such as
    a full preallocation, are left out."""
    names, written = FORMAT_OPTIONS[image.format], dict(image.options)
    wanted = [name for name in (*_SETTINGS, "extended_l2") if name in names and name in written]
    return tuple(f"{name}={names[name].format(written[name])}" for name in wanted)


def _encryption(image: Image) -> dict[str, str]:
    """LUKS with QEMU's ciphers. The key is random, so deriving it need not be slow (`iter-time`, in
    milliseconds); this changes only how long opening takes."""
    if not image.encrypted:
        return {}
    settings = {"key-secret": _KEY, "iter-time": "10"}
    if image.driver == "luks":
        return settings
    return {f"encrypt.{name}": value for name, value in (("format", "luks"), *settings.items())}


def data_path(image: Path) -> Path:
    """The file that holds the data of a qcow2 image with `data_file`."""
    return image.with_suffix(".data")


def key_path(image: Path) -> Path:
    """The file that holds the key of an encrypted image."""
    return image.with_suffix(".key")


def _secret(key: Path) -> tuple[str, ...]:
    return ("--object", f"secret,id={_KEY},file={key}")


def _on_server(driver: str, url: Url, key: Path | None) -> tuple[str, ...]:
    """QEMU's arguments that open an image on a server: the objects, and the name of the image."""
    members: dict[str, Any] = {"driver": driver, "file": url.node}
    if key is not None:
        luks = {"key-secret": _KEY}
        members |= luks if driver == "luks" else {"encrypt": {"format": "luks", **luks}}
    secret = () if key is None else _secret(key)
    return (*url.secrets, *secret, "json:" + json.dumps(members))


def _opening(driver: str, path: Path, key: Path | None) -> str:
    """An image as one argument of qemu-img's --image-opts."""
    member = "key-secret" if driver == "luks" else "encrypt.key-secret"
    secret = "" if key is None else f",{member}={_KEY}"
    return f"driver={driver},file.filename={path}{secret}"


def fill_command(
    driver: str,
    source: Path,
    path: ImagePlace,
    *,
    thin: bool = False,
    compressed: bool = False,
    key: Path | None = None,
) -> tuple[str, ...]:
    """The command that writes the bytes of `source` through the format into an existing image.

    Every block is written, including zeroes; on a thin image only blocks that are not zero.
    """
    zeroes = ("--target-is-zero",) if thin else ("-S", "0")
    compress = ("-c",) if compressed else ()
    start = ("qemu-img", "convert", "-q", "-n", "-W", "-m", "8", *zeroes, *compress, "-f", "raw")
    if isinstance(path, Url):
        *objects, name = _on_server(driver, path, key)
        return (*start, *objects, "-O", driver, str(source), name)
    if key is None:
        return (*start, "-O", driver, str(source), str(path))
    target = _opening(driver, path, key)
    return (*start, *_secret(key), "--target-image-opts", str(source), target)


def snapshot_command(
    image: Image, path: ImagePlace, name: str, key: Path | None, *, remove: bool = False
) -> tuple[str, ...]:
    """The command that takes an internal snapshot, or removes it."""
    action = "-d" if remove else "-c"
    if isinstance(path, Url):
        *objects, opening = _on_server(image.driver, path, key)
        return ("qemu-img", "snapshot", *objects, action, name, opening)
    if key is None:
        return ("qemu-img", "snapshot", action, name, str(path))
    opening = _opening(image.driver, path, key)
    return ("qemu-img", "snapshot", *_secret(key), "--image-opts", action, name, opening)


def opened(driver: str, path: ImagePlace, key: Path | None) -> tuple[str, ...]:
    """qemu-img's arguments that open an image, with its key if it has one."""
    if isinstance(path, Url):
        return _on_server(driver, path, key)
    if key is None:
        return ("-f", driver, str(path))
    return (*_secret(key), "--image-opts", _opening(driver, path, key))


def rewrites_of(image: Image, size: int, number: int) -> str:
    """Commands for qemu-io's standard input that write the path's share into overlay `number`.

    Whole clusters at even distances; of a disk with very many clusters, several at once.
    """
    cluster, share = int(image.option("cluster_size") or 0), int(image.option("overlay") or 0)
    wanted = max(1, size * share // 100 // cluster)
    piece = cluster * -(-wanted // _MOST_REWRITES)
    step = max(piece, piece * 100 // share)
    first = (number - 1) * piece % step
    offsets = range(first // cluster * cluster, size - piece + 1, step)
    return "".join(
        f"write -q -P {number} {offset // cluster * cluster} {piece}\n" for offset in offsets
    )
