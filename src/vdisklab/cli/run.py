"""`vdisklab run`: measure."""

from __future__ import annotations

from vdisklab.cli.shell.options import OutputOptions, takes_options
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.plan.run_request import RunRequest

PANEL = VerbPanel.MEASURE


@takes_options()
def run(request: RunRequest, output: OutputOptions) -> int:
    """Measure disk paths in random rounds until one is shown to be good enough, and rank them.

    Without --rounds the paths race: after three rounds, one that cannot be better than the leader
    by more than --within is not measured again. With --rounds all are measured as often. From the
    third round on, a terminal shows the ranking so far. The same command continues a campaign that
    was interrupted, and tries again what could not be measured. Exit status: 0, 4 if something that
    it made could not be removed from this host, 8 if cells failed or a path was not measured, 130
    if interrupted; finished measurements are always kept.

    Examples:

        vdisklab run '{ext4,xfs}/{raw,qcow2}/{none,writeback}'

        vdisklab run raw/none/{virtio,scsi,nvme} --rounds 10 --dir /srv/images

        vdisklab run '{raw,qcow2}/none' --find best --budget 30m --need durable

        vdisklab run --here --dir /mnt/a --dir /mnt/b --profile sysbench-fileio

        vdisklab run qcow2/none --qemu /opt/qemu-9 --qemu /opt/qemu-10

        vdisklab run raw/none --guest debian.qcow2

        vdisklab run {none,ext4/raw/none,zvol/none} --on /dev/sdb

        vdisklab run --again 3f2a
    """
    # Imported late: `run --help`, and an option that is wrong, need none of what measures.
    from vdisklab.cli.shell.run_campaigns import run_campaigns  # noqa: PLC0415

    return run_campaigns(request, output)
