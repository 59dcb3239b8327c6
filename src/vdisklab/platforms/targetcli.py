"""Commands of targetcli(8): on lines of a script, in a here-document, typed in its own shell.

In the shell a command is `[PATH] COMMAND WORDS`, PATH is taken from the one that `cd` chose, and
the prompt shows that path, a long one with `...` in it (configshell-fb's shell.py).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_ON_LINE = re.compile(
    r"(?m)^[^#\n>]*?(?P<path>/(?:backstores|iscsi)(?:/[^\s'\"]*)?)[ \t]+"
    r"(?P<verb>create|set)\b[ \t]*(?P<words>[^\n;&|]*)"
)
_PROMPT = re.compile(
    r"(?m)^[ \t]*(?:targetcli[ \t]+)?(?P<path>/[^\s>]*)>[ \t]?(?P<command>[^\n]*)$"
)
_DOCUMENT = re.compile(
    r"(?ms)^[^#\n]*\btargetcli\b[^\n]*<<-?[ \t]*['\"]?(?P<end>\w+)['\"]?[^\n]*\n(?P<body>.*?)"
    r"\n[ \t]*(?P=end)[ \t]*$"
)
_CD = re.compile(r"(?m)^[ \t]*cd[ \t]+/?(?:backstores|iscsi)\b")
_VERBS = (
    "cd", "create", "delete", "set", "get", "ls", "pwd", "help", "exit", "saveconfig",
    "restoreconfig", "clearconfig", "enable", "disable", "status", "info", "version", "refresh",
    "bookmarks", "login", "logout", "discover", "sessions",
)  # fmt: skip
_TOP = re.compile(r"/(?:backstores|iscsi)(?:/|$)")
_TRUE = ("true", "yes", "1")


@dataclass
class _Target:
    """An iSCSI target's first portal group, as these commands make it."""

    luns: list[dict[str, object]] = field(default_factory=list)
    acls: dict[str, list[dict[str, object]]] = field(default_factory=dict)
    attributes: dict[str, object] = field(default_factory=dict)


def is_targetcli(body: str) -> bool:
    """True for a text with commands of targetcli that make a backstore or a LUN."""
    return any(
        verb == "create" and re.search(r"/backstores/\w+$|/luns$", path)
        for path, verb, _ in _commands(body)
    )


def configuration(body: str) -> Mapping[str, object]:
    """What these commands make, in the form of LIO's saveconfig.json.

    `create` of fileio is `name file_or_dev size write_back`, of block `name dev`, of ramdisk `name
    size`; write_back is on without a word (targetcli-fb's ui_backstore.py), and the kernel reports
    the cache then (fd_configure_device in target_core_file.c sets emulate_write_cache). An ACL gets
    all LUNs with their numbers, unless add_mapped_luns=false (ui_target.py).
    """
    stores: dict[str, dict[str, object]] = {}
    targets: dict[str, _Target] = {}
    for path, verb, given in _commands(body):
        parts = path.strip("/").split("/")
        match parts, verb:
            case ["backstores", plugin], "create":
                _add_store(stores, plugin, given)
            case ["backstores", plugin, name], "set":
                store = stores.get(f"/backstores/{plugin}/{name}", {})
                store["attributes"] = {**_mapping(store.get("attributes")), **_set(given)}
            case ["iscsi", target, _], "set":
                targets.setdefault(target, _Target()).attributes |= _set(given)
            case ["iscsi", target, _, "luns"], "create":
                _add_lun(targets.setdefault(target, _Target()), given)
            case ["iscsi", target, _, "acls"], "create":
                _add_acl(targets.setdefault(target, _Target()), given)
            case ["iscsi", target, _, "acls", initiator], "create":
                acls = targets.setdefault(target, _Target()).acls
                acls.setdefault(initiator, []).append(_mapped(given))
            case _:
                pass
    return {
        "storage_objects": list(stores.values()),
        "targets": [
            {
                "wwn": name,
                "tpgs": [
                    {
                        "luns": target.luns,
                        "attributes": target.attributes,
                        "node_acls": [
                            {"node_wwn": initiator, "mapped_luns": mapped}
                            for initiator, mapped in target.acls.items()
                        ],
                    }
                ],
            }
            for name, target in targets.items()
        ],
    }


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _add_store(stores: dict[str, dict[str, object]], plugin: str, given: Sequence[str]) -> None:
    named = _given(
        given, ("name", "file_or_dev" if plugin == "fileio" else "dev", "size", "write_back")
    )
    keeps = named.get("write_back", "true").lower() in _TRUE
    file = named.get("file_or_dev") or named.get("dev") or ""
    name = named.get("name", "")
    stores[f"/backstores/{plugin}/{name}"] = {
        "plugin": plugin, "name": name, "dev": "" if plugin == "ramdisk" else file,
        "write_back": keeps,
    }  # fmt: skip


def _add_lun(target: _Target, given: Sequence[str]) -> None:
    named = _given(given, ("storage_object", "lun"))
    lun: dict[str, object] = {
        "index": named.get("lun") or str(len(target.luns)),
        "storage_object": named.get("storage_object", ""),
    }
    target.luns.append(lun)
    if named.get("add_mapped_luns", "true").lower() in _TRUE:
        for mapped in target.acls.values():
            mapped.append({"index": lun.get("index"), "tpg_lun": lun.get("index")})


def _add_acl(target: _Target, given: Sequence[str]) -> None:
    named = _given(given, ("wwn", "add_mapped_luns"))
    maps = named.get("add_mapped_luns", "true").lower() in _TRUE
    mapped: list[dict[str, object]] = [
        {"index": lun.get("index"), "tpg_lun": lun.get("index")}
        for lun in (target.luns if maps else ())
    ]
    target.acls.setdefault(named.get("wwn", ""), []).extend(mapped)


def _mapped(given: Sequence[str]) -> dict[str, object]:
    named = _given(given, ("mapped_lun", "tpg_lun_or_backstore", "write_protect"))
    protected = named.get("write_protect", "").lower() in _TRUE
    place = named.get("tpg_lun_or_backstore", "").removeprefix("lun")
    index = named.get("mapped_lun", "0").removeprefix("mapped_lun")
    return {"index": index, "tpg_lun": place, "write_protect": protected}


def _set(given: Sequence[str]) -> Mapping[str, object]:
    """The attributes of `set attribute NAME=VALUE …`."""
    return _given(given[1:], ()) if given[:1] == ["attribute"] else {}


def _given(given: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """The parameters of a command, by place or by name."""
    found: dict[str, str] = {}
    places = iter(names)
    for raw in given:
        name, equals, value = raw.strip("\"'").partition("=")
        found[name if equals else next(places, "")] = value if equals else name
    return found


def _commands(body: str) -> Iterator[tuple[str, str, list[str]]]:
    """The whole path, the command and the words of each command that chooses or changes."""
    if "backstores" not in body and "/iscsi" not in body:
        return
    prompts = [*_PROMPT.finditer(body)]
    if any(_is_of_shell(match["path"]) for match in prompts):
        yield from _in_shell((match["command"], match["path"]) for match in prompts)
        return
    documents = [match["body"] for match in _DOCUMENT.finditer(body)]
    for document in documents:
        yield from _in_shell((line, "") for line in document.splitlines())
    if not documents and _CD.search(body):
        yield from _in_shell((line, "") for line in body.splitlines())
        return
    rest = _DOCUMENT.sub("", body)
    for match in _ON_LINE.finditer(rest):
        yield posixpath.normpath(match["path"]), match["verb"], match["words"].split()


def _is_of_shell(path: str) -> bool:
    return path == "/" or _TOP.match(path) is not None


def _in_shell(lines: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str, list[str]]]:
    """The commands of targetcli's own shell; each line has the path of its prompt, if it has
    one."""
    now = "/"
    for line, shown in lines:
        if shown and "..." not in shown:
            now = posixpath.normpath(shown)
        found = line.partition("#")[0].split()
        if not found:
            continue
        place = now
        if found[0] not in _VERBS:
            place = posixpath.normpath(posixpath.join(now, found.pop(0)))
        if found[:1] == ["cd"]:
            now = posixpath.normpath(posixpath.join(place, *found[1:2]))
        elif found:
            yield place, found[0], found[1:]
