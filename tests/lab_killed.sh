#!/bin/sh
# Runs inside the lab (script/test-lab): SIGKILL before and after each program that builds or takes
# down each layer, then `clean`; a group, an array and a pool of similar names must outlive it all.
# Prints one line for each stack; the last line counts what failed.
# STRIDE (1) leaves out steps, where each takes seconds under emulation; an odd one meets both sides.
# DISK_STRIDE is that of the stacks on whole disks. STACKS names the stacks, with @N those on N disks.
# MOMENTS kills each builder so many times more, at any moment: while a program runs, too.
export PYTHONUNBUFFERED=1 STRIDE="${STRIDE:-1}"
export DISK_STRIDE="${DISK_STRIDE:-3}" MOMENTS="${MOMENTS:-2}"
export STACKS="${STACKS:-md:level=5 zvol lvm lvmthin md:level=0 zfs:raid=raidz1 luks lvmthin/ext4@4 \
    md:level=1/xfs@2 zvol/ext4@4 zfs:raid=mirror@2 lvm/luks/ext4@2}"
cat >/tmp/killed.py <<'P'
import os, random, signal, sys, time
from pathlib import Path
from vdisklab.actions.clean import remove_leftovers
from vdisklab.errors import VdisklabError
from vdisklab.host.blockdevice import signatures
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger, state_directory
from vdisklab.path.backing import BackingDevices
from vdisklab.path.disk_path import parse_path
from vdisklab.storage.site import open_site
from vdisklab.storage.stack import build_stack

host = LocalHost()

class Doomed(LocalHost):
    """Dies by SIGKILL around the program whose turn it is: 2n is before program n, 2n+1 after."""
    def __init__(self, step): self.step, self.count = step, 0
    def run(self, *argv, **more):
        self.reach()
        done = super().run(*argv, **more)
        self.reach()
        return done
    def reach(self):
        if self.count == self.step: os.kill(os.getpid(), signal.SIGKILL)
        self.count += 1

def died(step, text, devices, after=None):
    child = os.fork()
    if child == 0:
        try:
            layers, backing = parse_path(f"{text}/host").layers, BackingDevices(devices)
            with open_ledger() as ledger, open_site(Doomed(step), ledger, Path("/work")) as site, \
                    build_stack(site, layers, 32 << 20, "a", backing=backing, allocate=False) as top:
                where = top.image_path("file", "raw")
                with where.open("r+b" if where.is_block_device() else "wb") as file: file.write(b"x" * 4096)
            os._exit(0)
        except BaseException as error:
            print(f"  {text}, step {step}: {type(error).__name__}: {error}")
            os._exit(1)
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status): return True
    assert os.WEXITSTATUS(status) == 0, "the stack failed by itself"
    return False

def lines(*argv): return host.run(*argv, allowed=range(256)).stdout.split("\n")

def left(devices):
    found = [line.strip() for line in lines("vgs", "--noheadings", "-o", "vg_name")]
    found += lines("zpool", "list", "-H", "-o", "name")
    found += [line for line in lines("mdadm", "--detail", "--scan")]
    found += [line for line in lines("dmsetup", "ls") if line != "No devices found"]
    found += lines("losetup", "-a")
    found += [str(path) for path in Path("/work").glob("vdisklab-*")]
    found += [str(path) for path in (state_directory() / "ledger").glob("*")]
    found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if "vdisklab-" in line]
    found += [f"{device}: {each}" for device in devices for each in signatures(host, device)]
    return [each for each in found if each and STRANGER not in each]

def strangers():
    return [STRANGER in "\n".join(lines(*argv)) for argv in (
        ("vgs", "--noheadings", "-o", "vg_name"), ("zpool", "list", "-H", "-o", "name"),
        ("mdadm", "--detail", "--scan"), ("dmsetup", "ls"))]

STRANGER = "vdl_0badcafe_a_0"  # as ours are called
disks = sorted(Path("/dev/disk/by-id").glob("virtio-disk?"))
theirs, ours = disks[:4], tuple(disks[4:])
host.run("vgcreate", "--quiet", "--yes", STRANGER, theirs[0])
host.run("mdadm", "--quiet", "--create", f"/dev/md/{STRANGER}_md", f"--name={STRANGER}_md", "--metadata=1.2",
         "--level=1", "--raid-devices=2", "--assume-clean", "--run", theirs[1], theirs[2])
host.run("zpool", "create", "-f", f"{STRANGER}_p", theirs[3])
host.run("dmsetup", "create", f"{STRANGER}_m", "--table", "0 2048 zero")
failed = 0
for word in os.environ["STACKS"].split():
    text, _, count = word.partition("@")
    on = ours[:int(count or 0)]
    stride = int(os.environ["DISK_STRIDE" if on else "STRIDE"])
    begun, step, deaths, bad = time.monotonic(), 0, 0, 0
    begun_once = time.monotonic()
    died(-1, text, on)
    whole = time.monotonic() - begun_once
    moments = [random.uniform(0, whole) for _ in range(int(os.environ["MOMENTS"]))]
    plan = iter(moments)
    while (after := next(plan, None)) is not None or died(step, text, on):
        if after is not None: died(-1, text, on, after)
        deaths += 1
        said = []
        try:
            said += map(str, remove_leftovers(host))
        except VdisklabError as error:
            said.append(f"clean: {error}")
            bad += 1
        if rest := left(on):
            when = f"step {step}" if after is None else f"{after:.2f} s"
            print(f"  {text}, killed at {when}: left {rest}; clean said {said}")
            bad += 1
        if after is None: step += stride
    rest = left(on)
    bad += bool(rest)
    failed += bad
    where = f" on {len(on)} whole disks" if on else " on slices"
    print(f"{'FAILED' if bad else 'ok'} {text}{where}: {deaths} deaths by SIGKILL, every {stride}. of {step} steps, {len(moments)} at any moment of {whole:.1f} s, "
          f"each followed by clean ({time.monotonic() - begun:.0f} s){f', left {rest}' if rest else ''}")
kept = strangers()
print(f"{'ok' if all(kept) else 'FAILED'} a group, a pool, an array and a device of similar names are untouched: {kept}")
failed += not all(kept)
print(f"failed: {failed}")
sys.exit(failed != 0)
P
exec python3 /tmp/killed.py
