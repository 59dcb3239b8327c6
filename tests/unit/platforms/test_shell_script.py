"""Guests that a shell's text starts: none is missed, and no word of the shell becomes a disk."""

from __future__ import annotations

import re
import shlex
import subprocess
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vdisklab.path.segments import CacheMode
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.dialect import NotChangeableError
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import change_of, read_guests
from vdisklab.platforms.risk_kinds import FlushesDroppedBelow
from vdisklab.platforms.shell_script import commands_of
from vdisklab.value import replace

Q = "qemu-system-x86_64 -name {0} -drive file=/vm/{0}.raw,format=raw,if=virtio,cache={1}"
ONE = Q.format("one", "none")
TWO = Q.format("two", "unsafe")


def read(text: str) -> tuple[ConfiguredDisk, ...]:
    return read_guests([GuestText(text, "start.sh")])


def shown(text: str) -> list[str]:
    return [f"{disk.domain} {disk.path}" for disk in read(text)]


@pytest.mark.parametrize(
    "command",
    [
        f"bash -c '{TWO}'",
        f'ssh -t root@node2 "{TWO}"',
        f"tmux new-session -d -s two '{TWO}'",
        f'su - vm -c "{TWO}"',
        f"ssh node2 \"tmux new -d '{TWO}'\"",
        f"PID=$({TWO} -daemonize)",
        f"echo `{TWO}`",
        f'cmd="{TWO}"; eval "$cmd"',
        f"cmd='{TWO}'\n$cmd\n",
        f"nohup {TWO} >/dev/null 2>&1 &",
        f"if ! {TWO}; then exit 1; fi",
        f"start() {{ {TWO}; }}",
        f"case $1 in two) {TWO} ;; esac",
        f"(cd /vm && exec {TWO})",
        "EMU=qemu-system-x86_64; ARGS='-name two'\n"
        "${EMU} $ARGS -drive file=/vm/two.raw,format=raw,if=virtio,cache=unsafe",
        'KVM="${KVM:-qemu-kvm}"\n"$KVM" -name two -drive '
        "file=/vm/two.raw,format=raw,if=virtio,cache=unsafe",
        "$MY_EMULATOR -name two -drive file=/vm/two.raw,format=raw,if=virtio,cache=unsafe",
        "exec $MY_EMULATOR -name two -drive if=virtio,file=/vm/two.raw,format=raw,cache=unsafe",
    ],
)
def test_no_guest_of_a_script_is_missed(command: str) -> None:
    assert sorted(shown(f"#!/bin/sh\n{ONE}\n{command}\n")) == ["one raw/none", "two raw/unsafe"]
    assert "two raw/unsafe" in shown(f"{command}\n")


@pytest.mark.parametrize(
    "text",
    [
        f"{TWO}; echo stopped", f"{TWO};echo stopped", f"{TWO}&& notify done", f"({TWO})",
        f"{TWO}|logger", f"{{ {TWO}; }}", f"{TWO} & wait", f"{TWO} 2>/dev/null; exit",
        f"for i in 1 2; do {TWO}; sleep 2; done", f"until {TWO}; do sleep 9; done",
        f"{TWO} </dev/null >>log 2>&1; rm lock",
    ],
)  # fmt: skip
def test_what_follows_a_command_is_no_disk(text: str) -> None:
    assert shown(text) == ["two raw/unsafe"]


@pytest.mark.parametrize(
    "text",
    [
        "apt install -y qemu-system-x86 ovmf", "command -v qemu-system-x86_64 >/dev/null || exit",
        "pgrep -f qemu-system-x86_64 two", 'echo "usage: qemu-system-x86_64 IMAGE"',
        "BIN=$(which qemu-system-x86_64 qemu-kvm)",
    ],
)  # fmt: skip
def test_commands_that_only_name_qemu_have_no_disk(text: str) -> None:
    assert shown(f"{text}\n{ONE}") == ["one raw/none"]


ARRAYS = """\
#!/usr/bin/env bash
base=(-m 1024 -machine q35)  # of both
disk=(
  -device ahci,id=a0
  # the system
  -drive id=sys,if=none,format=qcow2,file='/vm/my sys.qcow2',cache=unsafe
)
disk+=(-device ide-hd,bus=a0.0,drive=sys)
%s qemu-system-x86_64 -name box ${base[*]} "${disk[@]}"
"""


@pytest.mark.parametrize("prefix", ["", "exec", "sudo -u vm"])
def test_an_array_of_the_same_file_is_read(prefix: str) -> None:
    (disk,) = read(ARRAYS % prefix)
    assert str(disk.path) == "qcow2/unsafe/sata"
    assert disk.source == "/vm/my sys.qcow2"


def test_words_in_a_string_that_grows_are_read() -> None:
    text = (
        'OPTS="-m 512"\nOPTS="$OPTS -drive file=/vm/a.raw,format=raw,if=virtio"\n'
        'OPTS+=",cache=directsync"\nqemu-kvm -name s $OPTS\n'
    )
    assert shown(text) == ["s raw/directsync"]


def test_a_variable_that_branches_set_is_read_with_each_value() -> None:
    text = (
        "MODE=none\nif [ -n \"$FAST\" ]; then MODE=unsafe; fi\nopt=cache=$MODE\n"
        "qemu-kvm -name b -drive file=/vm/b.raw,format=raw,if=virtio,$opt\n"
    )  # fmt: skip
    assert sorted(shown(text)) == ["b raw/none", "b raw/unsafe"]


def test_a_variable_that_was_used_is_set_anew() -> None:
    text = "".join(
        f"a=(-name {n} -drive file=/vm/{n}.raw,format=raw,if=virtio,cache={mode})\n"
        'qemu-kvm "${a[@]}"\n'
        for n, mode in (("x", "none"), ("y", "unsafe"))
    )
    assert shown(text) == ["x raw/none", "y raw/unsafe"]


def test_what_no_text_says_stays_as_it_is_written() -> None:
    (disk,) = read('qemu-kvm -name n "${DISKS[@]}"')
    assert "${DISKS[@]}, which may describe a disk" in (disk.problem or "")


@pytest.mark.parametrize(
    "command",
    [
        f"eatmydata {ONE}", f"sudo eatmydata -- {ONE}", f"LD_PRELOAD=libeatmydata.so {ONE}",
        f"env LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libeatmydata.so.1 {ONE}", f"nosync {ONE}",
        f"export LD_PRELOAD=/usr/lib64/nosync/nosync.so\n{ONE}", f"bash -c 'eatmydata {ONE}'",
        f"W=eatmydata\n$W {ONE}",
    ],
)  # fmt: skip
def test_a_library_that_takes_fsync_away_drops_flushes(command: str) -> None:
    (disk,) = read(command)
    found = [risk for risk in risks(disk) if isinstance(risk, FlushesDroppedBelow)]
    assert "makes QEMU's fsync do nothing" in str(found[0])


def test_a_guest_with_such_a_name_keeps_its_flushes() -> None:
    (disk,) = read(ONE.replace("-name one", "-name eatmydata"))
    assert disk.lost_below is None


@pytest.mark.parametrize(
    "text",
    [
        'a=xx\n' + 'a="$a$a"\n' * 60 + "qemu-kvm $a", '"' + "a" * 300_000, "$(" * 30_000,
        "x=(" + "a b " * 50_000, "`" * 30_001, "x=(#\n" * 10_000, "A=1\n" * 20_000,
        "a=1;a=2;a=3;" + "b=$a$a$a;" * 2_000 + "qemu-kvm $b", "sh -c '" * 5_000,
        "e() {\n" * 10_000, "e() {\n" * 10_000 + "}\n" * 10_000 + "e\n" * 100,
        "e() { f $1 $1; f $1; }; f() { g $@ $@; g $@; }; g() { h $@; }; e 1\n" * 99,
        "sh -c \"qemu-kvm " * 2_000,
    ],
)  # fmt: skip
def test_no_text_takes_long(text: str) -> None:
    start = time.monotonic()
    assert sum(len(command.argv) for command in commands_of(text)) < 1_000_000
    assert time.monotonic() - start < 8


@given(st.text(st.sampled_from("ab$'\"\\ \n;&|(){}[]@=+-<>#`x1"), max_size=200))
@settings(max_examples=4 * settings().max_examples, deadline=None)
def test_any_text_gives_words(text: str) -> None:
    for command in commands_of(text):
        assert command.argv


@pytest.mark.parametrize(
    "text",
    [
        f'echo "{ONE}" | bash', f"printf '{ONE}\\n' | sh", f"printf '%s\\n' '{ONE}' | sudo sh -x",
        f"echo {ONE} | ssh root@host", f'echo "{ONE}" | /bin/bash -s',
    ],
)  # fmt: skip
def test_what_a_shell_reads_from_a_pipe_is_run(text: str) -> None:
    (disk,) = read(text)
    assert disk.guest == "one"


@pytest.mark.parametrize(
    "text", [f'echo "{ONE}" | tee log', f'echo "{ONE}" || sh', f"echo {ONE}; sh"]
)
def test_what_is_only_told_is_no_guest(text: str) -> None:
    assert not any("qemu" in command.argv[0] for command in commands_of(text))


@pytest.mark.parametrize(
    "changed",
    [
        "if true; then\nCACHE=none\nfi", "if false; then x; else CACHE=none; fi",
        "case $1 in\nsafe) CACHE=none;;\nesac", '[ -n "$SAFE" ] && CACHE=none',
        "[[ $SAFE ]] && export CACHE=none", "if a; then if b; then CACHE=none; fi; fi",
    ],
)  # fmt: skip
def test_a_branch_after_the_first_use_leaves_both_values(changed: str) -> None:
    start = "qemu-system-x86_64 -name {} -drive file=/a,format=raw,if=virtio,cache=$CACHE"
    text = f"CACHE=unsafe\n{start.format('x')}\n{changed}\n{start.format('y')}\n"
    assert shown(text) == ["x raw/unsafe", "y raw/unsafe", "y raw/none"]


def test_a_value_that_surely_holds_is_the_only_one() -> None:
    start = "qemu-system-x86_64 -name {} -drive file=/a,format=raw,if=virtio,cache=$CACHE"
    for changed in (
        "CACHE=none",
        "if a; then b; fi\nCACHE=none",
        "case x in y) z;; esac\nCACHE=none",
    ):
        text = f"CACHE=unsafe\n{start.format('x')}\n{changed}\n{start.format('y')}\n"
        assert shown(text) == ["x raw/unsafe", "y raw/none"], changed


DRIVES = [
    "-drive file=/vm/a.raw,format=raw,if=virtio,cache=unsafe",
    r"-drive file=/vm/a\ b,,c.qcow2,format=qcow2,if=virtio,cache=unsafe",
    "-device virtio-scsi-pci -drive id=d,file=/vm/a.raw,if=none,cache=unsafe,format=raw "
    "-device scsi-hd,drive=d,serial=MINE",
    "-drive file=nbd://10.0.0.5/e,format=raw,if=virtio,cache=unsafe",
]
NESTED = ["{0}", "sh -c '{0}'", 'ssh node "{0}"', "ssh node \"tmux new -d '{0}'\""]


@pytest.mark.parametrize("nested", NESTED)
@pytest.mark.parametrize("drive", DRIVES)
def test_the_arguments_that_change_a_disk_fit_between_the_quotes_of_its_command(
    drive: str, nested: str
) -> None:
    """They are the shell's words at every depth, read back as what was wanted, and give the disk no
    serial number that it did not have."""
    started = "qemu-system-x86_64 -name w "
    (disk,) = read(nested.format(started + drive))
    assert disk.path is not None
    wanted = replace(disk.path, cache=CacheMode.WRITEBACK)
    change = change_of(disk, wanted)
    assert "'" not in change.paste
    assert '"' not in change.paste
    assert ("serial=" in change.paste) is ("serial=" in drive)
    for line, path in ((change.paste, wanted), (change.undo, disk.path)):
        text = nested.format(started + line)
        assert subprocess.run(["sh", "-n", "-c", text], check=False).returncode == 0
        (found,) = read(text)
        assert found.path is not None
        assert found.path.spelled_out == path.spelled_out
        assert (found.source, found.serial) == (disk.source, disk.serial)
        inner = text
        for _ in range(nested.count("'") // 2 + nested.count('"') // 2):
            inner = shlex.split(inner)[-1]
        assert shlex.split(inner) == shlex.split(started + line)


def test_the_disks_of_one_guest_get_arguments_that_do_not_collide() -> None:
    text = "qemu-system-x86_64 -name w " + " ".join(
        f"-drive file=/vm/{name}.raw,format=raw,if=virtio,cache=unsafe" for name in "ab"
    )
    lines = []
    for disk in read(text):
        assert disk.path is not None
        lines.append(change_of(disk, replace(disk.path, cache=CacheMode.NONE)).paste)
    names = [word for line in lines for word in line.replace(",", " ").split()]
    nodes = [word for word in names if word.startswith(("node-name=", "id="))]
    assert len(set(nodes)) == len(nodes) == 6
    both = read(f"qemu-system-x86_64 -name w {' '.join(lines)}")
    assert [disk.source for disk in both] == ["/vm/a.raw", "/vm/b.raw"]


DISK = "-drive file={},format=raw,if=virtio,cache={}"
STARTED = f"qemu-system-x86_64 -name one {DISK.format('/vm/one.raw', '$MODE')}"


def in_doubt(text: str, **files: str) -> list[str]:
    named = {name.replace("_", "."): given for name, given in files.items()}
    disks = read_guests([GuestText(text, "start.sh", files=named)])
    return [f"{disk.path}; {disk.may_differ}" for disk in disks]


@pytest.mark.parametrize(
    ("before", "files", "found"),
    [
        ("MODE=none\n. vm.conf\n", {"vm_conf": "MODE=unsafe\n"}, ["raw/unsafe; "]),
        ('MODE=none\nsource "vm.conf"\n', {"vm_conf": "# a\nset -a\nexport MODE='unsafe'\n"},
         ["raw/unsafe; "]),
        ('. "$(dirname "$0")/vm.conf"\n', {"vm_conf": "MODE=unsafe"}, ["raw/unsafe; "]),
        ('HERE="$(cd "$(dirname "$0")" && pwd)"\n. "$HERE/vm.conf"\n', {"vm_conf": "MODE=unsafe"},
         ["raw/unsafe; "]),
        ("MODE=none\n[ $1 = fast ] && . vm.conf\n", {"vm_conf": "MODE=unsafe\n"},
         ["raw/none; ", "raw/unsafe; "]),
        ("MODE=none\n[ -f vm.conf ] && . vm.conf\n", {"vm_conf": "MODE=unsafe\n"},
         ["raw/unsafe; "]),
        ("MODE=none\nif [ -f vm.conf ]; then . vm.conf; fi\n", {"vm_conf": "MODE=unsafe\n"},
         ["raw/none; ", "raw/unsafe; "]),
        ("MODE=none\n. vm.conf\n", {},
         ["raw/none; line 3 reads vm.conf, which was not found: $MODE may have another value"]),
        ("MODE=none\nsource /gone/vm.conf\n", {},
         ["raw/none; line 3 reads /gone/vm.conf, which was not found: "
          "$MODE may have another value"]),
        ("MODE=none\n. vm.conf\n", {"vm_conf": "load_all /etc/vms\n"},
         ["raw/none; line 1 of vm.conf runs load_all, which is not understood: "
          "$MODE may have another value"]),
        ("MODE=none\n. vm.conf\n", {"vm_conf": ". more.conf\n"},
         ["raw/none; line 1 of vm.conf reads more.conf, which was not found: "
          "$MODE may have another value"]),
        # What gets its value afterwards has this value.
        (". vm.conf\nMODE=none\n", {}, ["raw/none; "]),
    ],
)  # fmt: skip
def test_what_a_sourced_file_sets_holds(
    before: str, files: dict[str, str], found: list[str]
) -> None:
    assert in_doubt(f"#!/bin/sh\n{before}{STARTED}\n", **files) == found


def test_a_command_without_variables_is_in_no_doubt() -> None:
    assert in_doubt(f". gone.conf\n{ONE}\n") == ["raw/none; "]


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("qm set 9 --virtio0 thin:vm-9-disk-0,cache=$MODE\n", "lvmthin/none"),
        ("virt-install --name one --disk path=/vm/one.raw,format=raw,bus=virtio,cache=$MODE\n",
         "raw/none"),
    ],
)  # fmt: skip
def test_other_commands_of_a_script_are_in_doubt_too(command: str, path: str) -> None:
    storage = GuestText("lvmthin: thin\n\tvgname v\n", "storage.cfg")
    script = GuestText(f"MODE=none\n. gone.conf\n{command}", "make.sh")
    (disk,) = read_guests([storage, script])
    assert str(disk.path).startswith(path)
    assert disk.may_differ.startswith("line 2 reads gone.conf, which was not found: $MODE")


@pytest.mark.parametrize(
    ("loop", "sources"),
    [
        ('for d in a /dev/vg/b; do A+=(-drive "file=$d,if=virtio,format=raw"); done',
         ["a", "/dev/vg/b"]),
        ("for d in {a,b}; do\n  f=/vm/$d.raw\n  A+=(-drive file=$f,if=virtio,format=raw)\ndone",
         ["/vm/a.raw", "/vm/b.raw"]),
        ("for n in $(seq 1 2)\ndo A+=(-drive file=/vm/$n.raw,if=virtio,format=raw)\ndone",
         ["/vm/1.raw", "/vm/2.raw"]),
        ("for n in {1..3}; do A+=(-drive file=/vm/$n.raw,if=virtio,format=raw); done",
         ["/vm/1.raw", "/vm/2.raw", "/vm/3.raw"]),
        ('D=(x y)\nfor d in "${D[@]}"; do A+=(-drive file=/vm/$d,if=virtio,format=raw); done',
         ["/vm/x", "/vm/y"]),
        ("for p in a:1 b:2; do for q in c d; do A+=(-drive "
         "file=/${p%%:*}/${p##*:}$q,if=virtio,format=raw); done; done",
         ["/a/1c", "/a/1d", "/b/2c", "/b/2d"]),
        ('for d in "$@"; do A+=(-drive "file=$d,if=virtio,format=raw"); done', ["$@"]),
    ],
)  # fmt: skip
def test_a_loop_gives_a_disk_for_each_of_its_words(loop: str, sources: list[str]) -> None:
    disks = read(f'A=()\n{loop}\nqemu-system-x86_64 -m 1G "${{A[@]}}"\n')
    assert [disk.source for disk in disks] == sources


def test_a_guest_in_a_loop_is_read_for_each_word() -> None:
    loop = f"for g in one two; do {Q.format('$g', 'none')}; done"
    assert shown(loop) == ["one raw/none", "two raw/none"]


@pytest.mark.parametrize("cut", ["${F%.*}", "${F%%.*}.x", "${F#*/}", "${F##*/}", "${F%'.raw'}"])
def test_a_cut_is_that_of_the_shell(cut: str) -> None:
    text = f"F=/vm/a.x.raw\necho {cut}\n"
    printed = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True)
    assert [*commands_of(text)][-1].argv == ("echo", printed.stdout.strip())


def test_a_parameter_that_may_be_given_has_no_value() -> None:
    disks = read(f"F=${{1:-/srv/vm/web.raw}}\nqemu-system-x86_64 {DISK.format('$F', 'none')}\n")
    assert [disk.source for disk in disks] == ["${1:-/srv/vm/web.raw}"]


@pytest.mark.parametrize(
    "text",
    [
        "start() {\n c=${3:-none}\n %s\n}\n\"$1\" one /a.raw\n",
        "start() (\n local n=$1 c=${3-none}\n %s\n)\nstart db /b.raw unsafe\n",
        "start() {\n while [ $# -gt 1 ]; do shift; done\n c=$1\n %s\n}\nstart db unsafe\n",
        "start() {\n [ -d $1 ] && shift\n c=$1\n %s\n}\nstart db unsafe\n",
        "start() {\n c=$2\n %s\n}\nstart db \"$@\"\n",
        "c=${1:-none}\n%s\n", "c=$2\n%s\n", "c=$(mode)\n%s\n",
    ],
)  # fmt: skip
def test_a_cache_mode_that_a_caller_gives_is_unknown_and_not_refused(text: str) -> None:
    command = f"qemu-system-x86_64 -m 1G {DISK.format('/a.raw', '$c')}"
    (disk,) = read(text.replace("%s", command))
    assert disk.path is None
    assert disk.refused is None
    assert "its cache mode is $" in (disk.problem or "")


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("c=${1:-writeback}\n%s\n", "${1:-writeback}, which the script's first argument gives"),
        ("log() { echo x; }\nc=$2\n%s\n", "$2, which the script's second argument gives"),
        ("log() { echo x; }\nlog\nc=$3\n%s\n", "$3, which the script's third argument gives"),
        ("start() {\n c=$2\n %s\n}\n", "$2, which each call of its function gives"),
        ('start() {\n c=$2\n %s\n}\nstart db "$@"\n', "$2, which each call of its function gives"),
    ],
)
def test_who_gives_a_parameter_is_said(before: str, said: str) -> None:
    command = f"qemu-system-x86_64 -m 1G {DISK.format('/a.raw', '$c')}"
    (disk,) = read(before.replace("%s", command))
    assert (disk.problem or "").endswith(f"its cache mode is {said}")


FUNCTION = """#!/bin/bash
# start_vm /disks/old.qcow2 unsafe
start_vm() {
  qemu-system-x86_64 -m 2G -drive file=$1,format=qcow2,if=virtio,cache=${2:-none} -daemonize
}
start_vm /disks/a.qcow2 unsafe
start_vm /disks/b.qcow2
start_vm /disks/c.qcow2 writeback
"""
OPTIONS = """#!/bin/bash
function boot {
  local name="$1" disk="$2" mode="${3:-none}"
  shift 3 || true
  qemu-system-x86_64 -name "$name" -drive file="$disk",format=raw,if=virtio,cache="$mode" "$@"
}
main() {
  for d in x y; do boot "$d" "/vm/$d.raw" writeback -snapshot; done
  boot web /vm/web.raw unsafe -display none
  boot db /vm/db.raw
}
main "$@"
"""


def test_each_call_of_a_function_is_a_guest_with_its_place() -> None:
    assert shown(FUNCTION) == [
        "start:6 qcow2/unsafe", "start:7 qcow2/none", "start:8 qcow2/writeback"
    ]  # fmt: skip
    assert [disk.source for disk in read(FUNCTION)] == [
        f"/disks/{name}.qcow2" for name in "abc"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        'for d in "$@"; do boot "$d"; done\nboot() { %s; }\n',  # called before it is known
        "boot() { boot; %s; }\nif false; then :; fi\n",
        "a() { b; }\nb() { %s; }\n",
    ],
)
def test_a_function_whose_call_is_not_understood_is_read_as_it_stands(text: str) -> None:
    command = f"qemu-system-x86_64 -name vm {DISK.format('/a.raw', 'unsafe')}"
    assert shown(text.replace("%s", command)) == ["vm raw/unsafe"]


def test_a_function_that_calls_another_gives_it_its_words() -> None:
    assert [f"{disk.domain} {disk.path} {disk.transient}" for disk in read(OPTIONS)] == [
        "x raw/writeback True", "y raw/writeback True", "web raw/unsafe False",
        "db raw/none False",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "add() { args+=(-drive file=$1.raw,format=raw,if=virtio,cache=$2); }\nadd /a none\n"
        'add /b unsafe\nqemu-system-x86_64 -name vm "${args[@]}"\n',
        'set -- -name vm\nset -- "$@" -drive file=/a.raw,format=raw,if=virtio,cache=none\n'
        'set -- "$@" -drive file=/b.raw,format=raw,if=virtio,cache=unsafe\n'
        'exec qemu-system-x86_64 "$@"\n',
        'vm() { qemu-system-x86_64 -name vm $(printf x) "${@:2}"; }\n'
        "vm x -drive file=/a.raw,format=raw,if=virtio,cache=none "
        "-drive file=/b.raw,format=raw,if=virtio,cache=unsafe\n",
    ],
)
def test_the_arguments_that_functions_and_set_collect_are_those_of_one_guest(text: str) -> None:
    disks = [f"{disk.domain} {disk.path}" for disk in read(text) if disk.target != "?"]
    assert disks == ["vm raw/none", "vm raw/unsafe"]


@pytest.mark.parametrize(
    ("before", "cache", "names"),
    [
        ("CACHE=${CACHE:-none}\n", "$CACHE", "CACHE (none)"),
        ("", "${CACHE:-writeback}", "CACHE (writeback)"),
        ("MODE=${MODE_OF_DISK-none}\n", "${MODE}", "MODE_OF_DISK (none)"),
        ("ARGS=(${MODE:-none})\n", "${ARGS[@]}", "MODE (none)"),
        ("f() { C=$1; }\nf ${MODE:-none}\n", "$C", "MODE (none)"),
    ],
)
def test_a_default_that_the_environment_may_replace_is_in_doubt(
    before: str, cache: str, names: str
) -> None:
    command = f"qemu-system-x86_64 {DISK.format('/a.raw', cache)} {DISK.format('/b.raw', 'none')}"
    disk, other = read(f"#!/bin/sh\n{before}{command}\n")
    assert disk.path is not None
    assert disk.may_differ == (
        f"the environment may set {names}, of which only the default is known here"
    )
    assert not other.may_differ


@pytest.mark.parametrize("flag", ["${NOFLUSH}", "$NF", "{{no_flush}}"])
@pytest.mark.parametrize(
    "drive",
    [
        "-drive file=/a.raw,format=raw,if=virtio,cache.direct=on,cache.no-flush={0}",
        "-blockdev driver=file,node-name=f,filename=/a.raw,cache.no-flush={0} -blockdev "
        "driver=raw,node-name=d,file=f,cache.no-flush={0} -device virtio-blk-pci,drive=d",
    ],
)
def test_a_flag_of_a_variable_is_unknown_and_not_off(drive: str, flag: str) -> None:
    (disk,) = read(f"qemu-system-x86_64 -m 1G {drive.replace('{0}', flag.replace(' ', ''))}\n")
    assert disk.path is None
    assert f"its cache.no-flush is {flag}, a variable" in (disk.problem or "")


ADDED = "-drive file=$f,format=raw,if=virtio,cache=$c"
CALLS = """#!/bin/bash
Q=(qemu-system-x86_64 -name vm)
add() {{
  {0}
  Q+=({1})
}}
add /a none
{2}
exec "${{Q[@]}}"
"""


@pytest.mark.parametrize("given", ["local f=$1 c=$2", "f=$1; c=$2", "local f=$1\n  declare c=$2"])
@pytest.mark.parametrize(
    "calls",
    [
        "if true; then\n  add /b unsafe\n  add /c writeback\nfi",
        'case "$1" in\n  x) add /b unsafe ;;\n  *) add /c writeback ;;\nesac',
        "if x; then :; else add /b unsafe; fi; add /c writeback",
        "[ -e x ] && add /b unsafe\nwhile :; do if x; then add /c writeback; fi; done",
        "more() { add /b unsafe; add /c writeback; }\nif x; then more; fi",
    ],
)
def test_a_call_in_a_branch_has_the_words_of_this_call(given: str, calls: str) -> None:
    disks = read(CALLS.format(given, ADDED, calls))
    assert [f"{disk.source} {disk.path}" for disk in disks] == [
        "/a raw/none", "/b raw/unsafe", "/c raw/writeback"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "before",
    [
        "C=unsafe\nslow() { C=none; }\nif x; then slow; fi",
        "C=none\nfast() { C=unsafe; }\ncase $1 in fast) fast ;; esac",
        "X=none; [ $1 ] && X=unsafe\nsetc() { C=$1; }\nsetc $X",
        "mode() { if [ $1 = fast ]; then C=unsafe; else C=none; fi; }\nmode $1",
        "while :; do if x; then C=unsafe; else C=none; fi; done",
        "C=unsafe; [ $SAFE ] && C+=,cache=none",
        "[ $FAST ] && C=none\nC=${C:-unsafe}",
        "C=none; unset C; C=${C:-unsafe}",
    ],
)
def test_a_value_that_a_branch_may_set_is_beside_the_one_before(before: str) -> None:
    arguments = "qemu-system-x86_64 -drive file=/a.raw,format=raw,if=virtio,cache=$C"
    text = f'{before}\nQ=({arguments})\nQ+=(-m 1G)\nexec "${{Q[@]}}"\n'
    assert {disk.path.cache for disk in read(text) if disk.path} == {
        CacheMode.NONE, CacheMode.UNSAFE
    }  # fmt: skip


def test_each_value_of_a_variable_reaches_the_arguments_that_it_is_added_to() -> None:
    text = (
        "C=none; [ $FAST ] && C=unsafe\nQ=(qemu-system-x86_64)\n"
        'Q+=(-drive file=/a.raw,format=raw,if=virtio,cache=$C)\nexec "${Q[@]}"\n'
    )
    assert {str(disk.path) for disk in read(text)} == {"raw/none", "raw/unsafe"}


def test_a_local_variable_ends_with_its_call() -> None:
    command = f"qemu-system-x86_64 {DISK.format('/a.raw', '$C')}"
    (disk,) = read(f"C=unsafe\nf() {{ local C=none; }}\nf\n{command}\n")
    assert str(disk.path) == "raw/unsafe"


def test_a_variable_of_more_values_than_are_read_is_not_known() -> None:
    arms = "\n".join(
        f"  {n}) O=serial=s{n},cache={'none' if n else 'unsafe'} ;;" for n in range(12)
    )
    text = f"case $1 in\n{arms}\nesac\nqemu-system-x86_64 -drive file=/a,format=raw,if=virtio,$O\n"
    (disk,) = read(text)
    assert disk.may_differ == "$O may set its cache mode"


def test_the_words_of_an_array_are_joined_by_ifs() -> None:
    text = "IFS=,\nO=(if=virtio serial=x cache=unsafe)\nqemu-system-x86_64 -drive"
    (disk,) = read(f'{text} "file=/a.raw,format=raw,${{O[*]}}"\n')
    assert str(disk.path) == "raw/unsafe"


UNREAD = [
    ("$OPTS", "$OPTS"),
    ("${OPTS}", "${OPTS}"),
    ("$(cat /etc/vm/opts)", "$(cat /etc/vm/opts)"),
    ("`cat /etc/vm/opts`", "`cat /etc/vm/opts`"),
    ('"$(IFS=,; echo "cache=unsafe")"', "$(IFS=,; echo cache=unsafe)"),
    ('"$@"', "$@"),
    ('"$*"', "$*"),
    ("$3", "$3"),
    ("${MORE[*]}", "${MORE[*]}"),
    ("${MODE:+cache=$MODE,x=y}", "${MODE:+cache=$MODE,x=y}"),
    ("$KEY=unsafe", "$KEY"),
    ("cache.$KEY=on", "$KEY"),
]
ON_NODES = (
    "-blockdev driver=file,node-name=f,filename=/a.raw%s -blockdev driver=raw,node-name=d,file=f%s "
    "-device virtio-blk-pci,drive=d%s"
)


@pytest.mark.parametrize(("spelled", "said"), UNREAD)
@pytest.mark.parametrize("place", ["%s,if=virtio", "if=virtio,%s", "if=virtio,cache=none,%s"])
def test_unknown_words_in_a_list_of_options_leave_the_disk_in_doubt(
    spelled: str, said: str, place: str
) -> None:
    drive = f"file=/a.raw,format=raw,{place.replace('%s', spelled)}"
    disk, other = read(f"qemu-system-x86_64 -drive {drive} {DISK.format('/b.raw', 'none')}\n")
    assert (disk.source, disk.may_differ) == ("/a.raw", f"{said} may set its cache mode")
    assert (str(other.path), other.may_differ) == ("raw/none", "")


@pytest.mark.parametrize("spelled", ["$MORE", "${MORE:+,$MORE}", "$(more)"])
@pytest.mark.parametrize(
    "drive",
    ["format=raw,if=virtio{0}", "if=virtio,format=raw{0}", "if=virtio,format=raw,cache=none{0}",
     "if=virtio,format=raw,media=disk{0}", "if=virtio,format=raw,file=/a.raw{0}"],
)  # fmt: skip
def test_words_at_the_end_of_an_option_may_be_further_ones(drive: str, spelled: str) -> None:
    (disk,) = read(f"qemu-system-x86_64 -drive file=/a.raw,{drive.replace('{0}', spelled)}\n")
    assert disk.source == "/a.raw"
    assert disk.may_differ == f"{spelled} may set its cache mode"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (ON_NODES % (",$O", "", ""), "$O may set its cache mode"),
        (ON_NODES % ("", ",$(o)", ""), "$(o) may set its cache mode"),
        (ON_NODES % ("", "", ",${O}"), "${O} may set its write cache"),
        (ON_NODES % ("", "", "") + " -global $O", "-global $O may change it"),
        (ON_NODES % ("", "", "") + " -global virtio-blk-pci.$O", "-global virtio-blk-pci.$O may"),
        ("-drive file=/a.raw,if=virtio,format=raw,id=d -set drive.$O", "-set drive.$O may change"),
        ("-drive file=/a.raw,if=virtio,format=raw,id=d -set drive.d.$O", "$O may set its cache"),
        ("-drive file=/a.raw,if=virtio,format=raw,snapshot=$O", "snapshot=$O may throw its writes"),
    ],
)
def test_unknown_words_are_in_doubt_in_each_argument_that_changes_a_disk(
    arguments: str, said: str
) -> None:
    (disk,) = read(f"qemu-system-x86_64 -m 1G {arguments}\n")
    assert disk.source == "/a.raw"
    assert disk.may_differ.startswith(said)


@pytest.mark.parametrize("more", ["$MORE", '"$@"', '"${MORE[@]}"', "$(more)", "-$KIND x", "-$KIND"])
def test_an_unknown_argument_has_a_row_of_its_own(more: str) -> None:
    disk, other = read(f"qemu-system-x86_64 {DISK.format('/a.raw', 'none')} {more}\n")
    assert str(disk.path) == "raw/none"
    assert (other.target, other.path) == ("?", None)
    assert "a shell puts" in (other.problem or "")


@pytest.mark.parametrize("name", ["/srv/$VM.raw", "$DIR/a.raw", "$(image a b).raw", "$IMAGE"])
def test_a_name_of_a_file_with_unknown_words_is_one_value(name: str) -> None:
    (disk,) = read(f"qemu-system-x86_64 {DISK.format(name, 'none')}\n")
    assert (str(disk.path), disk.may_differ) == ("raw/none", "")


def test_a_flag_that_the_environment_may_set_is_in_doubt() -> None:
    (disk,) = read(
        "NF=${NOFLUSH:-off}\nqemu-system-x86_64 -drive "
        "file=/a.raw,format=raw,if=virtio,cache.direct=on,cache.no-flush=$NF\n"
    )
    assert "NOFLUSH (off)" in disk.may_differ


def test_a_name_of_a_file_that_the_environment_may_set_is_no_doubt_of_the_settings() -> None:
    (disk,) = read(f"qemu-system-x86_64 {DISK.format('${DISK:-/a.raw}', 'none')}\n")
    assert (disk.source, disk.may_differ) == ("/a.raw", "")


def test_a_variable_that_the_text_sets_is_not_the_environments() -> None:
    (disk,) = read(f"C=none\nqemu-system-x86_64 {DISK.format('/a.raw', '${C:-unsafe}')}\n")
    assert (str(disk.path), disk.may_differ) == ("raw/none", "")


def test_the_colon_of_a_parameter_is_that_of_no_protocol() -> None:
    (disk,) = read(f"qemu-system-x86_64 -m 1G {DISK.format('${1:?image}', 'none')}\n")
    assert (disk.source, disk.problem, str(disk.path)) == ("${1:?image}", None, "raw/none")


def test_a_loop_in_a_loop_does_not_take_long() -> None:
    loop = "for i in {1..2000}; do " * 4 + "A+=(x)\n" + "done;" * 4
    began = time.process_time()
    assert shown(f"{loop}\n{ONE}\n") == ["one raw/none"]
    assert time.process_time() - began < 5


CALLED = """#!/bin/bash
: "${CACHE:=unsafe}"
start_vm() {
  qemu-system-x86_64 -name "$1" -drive "file=/srv/$1.qcow2,if=virtio,format=qcow2,cache=$2"
}
start_vm web none
start_vm ci unsafe
start_vm db "$CACHE"
"""


def test_one_guest_of_a_function_is_changed_in_its_call() -> None:
    """Arguments in the function's place would give each of its guests the same disk."""
    web, ci, db = read_guests([GuestText(CALLED, "vm.sh")])
    assert ci.changed_at == "the cache mode of the call `start_vm ci unsafe` in line 7 of vm.sh"
    assert ci.path is not None
    with pytest.raises(NotChangeableError, match="the function `start_vm` sets it"):
        change_of(ci, replace(ci.path, cache=CacheMode.NONE))
    assert web.changed_in == db.changed_in == "the function `start_vm`"


def test_a_default_that_a_script_gives_a_variable_is_its_value() -> None:
    *_, db = read_guests([GuestText(CALLED, "vm.sh")])
    assert db.path is not None
    assert db.path.cache is CacheMode.UNSAFE
    assert "CACHE" in db.may_differ


@pytest.mark.parametrize("more", [",$OPTS", ",cache=none,${OPTS}", ",cache=none$(opts)", ",`opts`"])
@pytest.mark.parametrize(
    "command",
    [
        "virt-install --name v --disk path=/srv/a.raw,format=raw,bus=virtio{0}",
        "qm create 101 --virtio0 /dev/vg/a,size=1G{0}",
        "qm set 101 --virtio0 /dev/vg/a{0}",
    ],
)
def test_unknown_words_in_the_options_of_managers_may_be_the_cache_mode(
    command: str, more: str
) -> None:
    (disk,) = read(f"{command.replace('{0}', more)}\n")
    assert disk.path is None
    assert "its cache mode is " in (disk.problem or "")
    assert "a variable whose value is not known" in (disk.problem or "")


@pytest.mark.parametrize("command", ["read -r C < /m", "IFS=, read x C", "printf -v C %s unsafe"])
def test_a_variable_that_is_read_from_elsewhere_is_not_known(command: str) -> None:
    (disk,) = read(f"C=none\n{command}\nqemu-system-x86_64 {DISK.format('/a.raw', '$C')}\n")
    assert "its cache mode is $C, a variable" in (disk.problem or "")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('eval "$SET"', "line 3 runs eval"),
        ("eval $(cat opts)", "line 3 runs eval"),
        ('eval "$1=unsafe"', "line 3 runs eval"),
        ('command eval "$(getopt -o c: -- "$@")"', "line 3 runs eval"),
        ('for each in "$@"; do case $each in *=*) eval "$each" ;; esac; done',
         "line 3 runs eval"),
        ("source <(grep = vm.conf)", "line 3 reads settings from a command"),
        ('. "$CONF"', "line 3 reads $CONF, which is not known"),
        ('export $(grep -v "^#" .env | xargs)',
         "line 3 runs export $(grep -v ^# .env | xargs)"),
        ('while IFS== read -r k v; do declare "$k=$v"; done < vm.conf',
         'line 3 runs declare "$k=$v"'),
        ('export "$SET"', 'line 3 runs export "$SET"'),
        ('read -r "$1" < vm.conf', 'line 3 runs read "$1"'),
        ('printf -v "$name" %s unsafe', 'line 3 runs printf "$name"'),
        ("set_all() { eval \"$1\"; }\nset_all \"$SET\"", "line 3 runs eval"),
    ],
)  # fmt: skip
def test_a_line_that_may_set_any_variable_leaves_the_settings_in_doubt(
    line: str, said: str
) -> None:
    before = f"#!/bin/bash\nMODE=none\n{line}\n"
    assert in_doubt(f"{before}{STARTED}\n") == [
        f"raw/none; {said}: $MODE may have another value"
    ]  # fmt: skip
    # What gets its value afterwards has it.
    assert in_doubt(f"{before}MODE=writeback\n{STARTED}\n")[-1] == "raw/writeback; "


def test_the_variables_that_may_differ_are_named_and_counted() -> None:
    text = 'A=1; B=2; C=none; D=/a.raw; E=0\neval "$SET"\nqemu-system-x86_64 -m $A -smp $B '
    (disk,) = read(f"{text}-name n$E -drive file=$D,format=raw,if=virtio,cache=$C\n")
    assert disk.may_differ == "line 2 runs eval: $A, $B, $C and 2 more may have other values"
    (two,) = read(f"{text}-drive file=/a.raw,format=raw,if=virtio,cache=$C\n")
    assert two.may_differ.endswith("$A, $B and $C may have other values")


def test_an_eval_that_sets_no_other_variable_is_no_doubt() -> None:
    for line in (
        "eval $(ssh-agent)",
        'eval set -- "$(getopt -o c: -- "$@")"',
        "eval 'X=1; Y=$X'",
        "trap 'rm -f $PID' EXIT",
        'read -r -p "Start? " ANSWER',
    ):
        assert in_doubt(f"MODE=none\n{line}\n{STARTED}\n") == ["raw/none; "], line


CACHED = f"qemu-system-x86_64 {DISK.format('/a.raw', '$C')}"


@pytest.mark.parametrize(
    "line",
    [
        'eval "C=unsafe"', "builtin eval C=unsafe", 'declare "C=unsafe"', 'export "C"=unsafe',
        "declare -n R=C; R=unsafe", "trap 'C=unsafe' USR1", "C[0]=unsafe",
        'f() { eval "$1=unsafe"; }\nf C', 'f() { declare -g "$1=unsafe"; }\nf C',
        "f() { local -n r=$1; r=unsafe; }\nf C", "mountpoint -q /vm || C=unsafe",
        "grep -q x /proc/cmdline && { echo fast; C=unsafe; }",
        "while next; do C=unsafe; done", "for each in $LIST; do C=unsafe; done",
    ],
)  # fmt: skip
def test_a_variable_that_is_set_in_another_way_has_this_value(line: str) -> None:
    """With the value from before it, if that may hold."""
    assert "unsafe" in {
        str(disk.path and disk.path.cache) for disk in read(f"C=none\n{line}\n{CACHED}")
    }
    within = f"start() {{\nC=unsafe\n{line.replace('unsafe', 'none')}\n{CACHED}\n}}\nstart\n"
    if "&&" in line or "||" in line or "while" in line or "for " in line:
        assert [str(disk.path) for disk in read(within)] == ["raw/unsafe", "raw/none"]


@pytest.mark.parametrize(
    "line", ['read -rp "Mode: " "C"', "getopts c: C", "select C in a b; do break; done"]
)
def test_a_variable_that_a_person_chooses_is_not_known(line: str) -> None:
    (disk,) = read(f"C=none\n{line}\n{CACHED}\n")
    assert "its cache mode is $C, a variable" in (disk.problem or "")


@pytest.mark.parametrize(
    "line",
    ['[ -z "$C" ] && C=none', 'if [ "$C" = "" ]; then C=none; fi', "[[ -v C ]] || C=none",
     'test -n "$C" || export C=none'],
)  # fmt: skip
def test_a_variable_that_a_test_asks_for_may_be_the_environments(line: str) -> None:
    (disk,) = read(f"{line}\n{CACHED}\n")
    assert str(disk.path) == "raw/none"
    assert disk.may_differ.startswith("the environment may set C (none)")


@pytest.mark.parametrize(
    "before", ["env C=unsafe", "C=unsafe", "sudo C=unsafe", "export C; C=unsafe"]
)
def test_a_shell_that_is_given_a_variable_has_its_value(before: str) -> None:
    (disk,) = read(f"C=none\n{before} bash -c '{CACHED}'\n")
    assert str(disk.path) == "raw/unsafe"
    assert [str(each.path) for each in read(f"C=unsafe\nbash -c 'C=none; x'\n{CACHED}\n")] == [
        "raw/unsafe"
    ]  # fmt: skip


def test_a_text_that_a_command_is_given_sets_nothing_outside_it() -> None:
    text = "C={}\n{}\ncat > vm.conf <<EOF\nC={}\nif\nEOF\n{}\n"
    for mode, other in (("none", "unsafe"), ("unsafe", "none")):
        disks = read(text.format(mode, CACHED, other, CACHED))
        assert {str(disk.path) for disk in disks} == {f"raw/{mode}"}
    (within,) = read(f"ssh node bash <<'EOF'\nC=unsafe\n{CACHED}\nEOF\n")
    assert str(within.path) == "raw/unsafe"


def test_an_element_of_an_array_is_a_word_of_it() -> None:
    drive = "file=/a.raw,format=raw,if=virtio,cache=unsafe"
    text = f'D=()\nD[0]=-drive\nD[$n]={drive}\nqemu-kvm "${{D[@]}}"\n'
    assert [str(disk.path) for disk in read(text)] == ["raw/unsafe"]


def test_an_alias_has_its_words() -> None:
    (disk,) = read(f"alias q='qemu-system-x86_64 -snapshot'\nq {DISK.format('/a.raw', 'none')}\n")
    assert disk.transient


def test_a_doubt_names_the_line_of_the_file() -> None:
    unit = f"[Service]\nEnvironmentFile=/gone\nEnvironment=C=none\nExecStart=/usr/bin/{CACHED}\n"
    paste = f"Some words\n\n```sh\nC=none\neval $X\n{CACHED}\n```\n"
    for text, line in ((unit, 2), (paste, 5)):
        (disk,) = read_guests([GuestText(text, "vm.txt")])
        assert disk.may_differ.startswith(f"line {line} r"), disk.may_differ


BOTH = "-drive file=/a.raw,format=raw,if=virtio,cache=none -drive file=/b.raw,format=raw,if={},{}"


@pytest.mark.parametrize(
    ("before", "arguments", "doubted"),
    [
        # The first drive is unreadable without the default, so the second has another name.
        ("D=${D:-file=/a.raw,format=raw,if=virtio,cache=none}",
         "-drive $D -drive file=/b.raw,format=raw,if=virtio,cache=none", "a"),
        ("B=${B:-virtio}", BOTH.format("$B", "cache=none"), "b"),
        ("O=${O:-cache=none}", BOTH.format("virtio", "$O"), "b"),
        ("E=${E:-}", BOTH.format("virtio", "cache=none") + " $E", "ab"),
        ("", BOTH.format("virtio", "cache=none") + " ${E:-}", "ab"),
        ('[ -z "$E" ] && E="-m 512"', BOTH.format("virtio", "cache=none") + " $E", "ab"),
        ("D=${D:-" + BOTH.format("virtio", "cache=none") + "}", "$D", "ab"),
        ("", BOTH.format("virtio", "cache=none") + " -m ${M:-512}", ""),
    ],
)  # fmt: skip
def test_the_environment_puts_each_disk_in_doubt_that_it_may_change(
    before: str, arguments: str, doubted: str
) -> None:
    disks = read(f"{before}\nqemu-system-x86_64 -name g {arguments}\n")
    assert [(disk.source or "")[1] for disk in disks if disk.path] == ["a", "b"]
    found = "".join((disk.source or "")[1] for disk in disks if disk.may_differ)
    assert found == doubted
    assert all(
        re.match(r"the environment may set [A-Z]\b", disk.may_differ)
        for disk in disks
        if disk.may_differ
    )


def test_further_arguments_that_are_not_known_leave_each_disk_in_doubt() -> None:
    text = f"qemu-system-x86_64 -name g {BOTH.format('virtio', 'cache=none')} "
    *disks, further = read(f"{text} $MORE\n")
    assert {disk.may_differ for disk in disks} == {
        "what stands for $MORE may change it (-snapshot, -global)"
    }  # fmt: skip
    assert "may change the others" in (further.problem or "")
    # A script is started without arguments as a rule, and these have a row.
    assert [disk.may_differ for disk in read(f'{text} "$@"\n')] == ["", "", ""]


def test_a_loop_over_what_the_environment_may_set_is_in_doubt() -> None:
    disks = read(f"for C in ${{MODES:-none writeback}}; do\n{CACHED}\ndone\n")
    assert [str(disk.path) for disk in disks] == ["raw/none", "raw/writeback"]
    assert all("MODES (none writeback)" in disk.may_differ for disk in disks)
