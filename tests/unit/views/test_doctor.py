from __future__ import annotations

from vdisklab.answers.doctor import DoctorAnswer
from vdisklab.inspection.host_features import Availability, HostFinding
from vdisklab.views.doctor import tables
from vdisklab.views.terminal import lines_of

AS_ROOT = "run vdisklab as root"


def test_the_way_to_root_is_said_once_with_all_that_it_unlocks() -> None:
    limited = Availability.LIMITED
    found = [
        HostFinding(
            f"layer {name}", limited, "building it needs root", "cannot be measured", AS_ROOT
        )
        for name in ("ext4", "xfs")
    ]
    other = HostFinding("layer zfs", Availability.MISSING, "no module", "layer zfs", "install it")
    rights = HostFinding(
        "root", limited, "no (user 1000)", "cannot be measured: power cuts", AS_ROOT
    )
    (table,) = tables(DoctorAnswer.of([*found, other, rights]))
    text = " ".join(" ".join(map(str, lines_of(table, 200))).split())
    assert text.count(AS_ROOT) == 1
    assert f"remedy: {AS_ROOT}, which also unlocks: layer ext4, layer xfs" in text
    assert "remedy: install it" in text
    (alone,) = tables(DoctorAnswer.of(found))
    assert AS_ROOT in " ".join(map(str, lines_of(alone, 200))), "no row says it for these"
