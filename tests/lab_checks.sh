# shellcheck shell=sh
# Sourced by the scripts that run inside the lab: checks, each printed on a line, and campaigns whose
# runs must all be measured under KVM. The script ends with the number of checks that failed.
export PYTHONUNBUFFERED=1
carried=/vdisklab/files
failed=0
campaigns=0
check() { # NAME COMMAND...: runs it, and prints the verdict and the seconds
    name="$1"
    shift
    begin=$(cut -d' ' -f1 /proc/uptime)
    if "$@" >/tmp/output 2>&1; then verdict=ok; else verdict=FAILED; failed=$((failed + 1)); fi
    end=$(cut -d' ' -f1 /proc/uptime)
    echo "$verdict $name ($(echo "$end $begin" | awk '{printf "%.1f", $1 - $2}') s)"
    [ "$verdict" = ok ] || sed 's/^/    /' /tmp/output | tail -20
}
indented() { sed 's/^/  /' /tmp/output; }
campaign() { # DATABASE RUNS WORDS...
    database="$1" runs="$2"
    shift 2
    python3 -m vdisklab run "$@" --rounds 1 --baseline none --dir /work --db "$database" &&
        python3 "$carried/lab_under_kvm.py" "$database" "$runs" >/tmp/cells
}
measured() { # NAME RUNS WORDS...: a campaign whose RUNS runs must all be measured under KVM
    name="$1"
    shift
    campaigns=$((campaigns + 1))
    : >/tmp/cells
    check "$name" campaign "/work/campaign$campaigns.sqlite" "$@"
    sed 's/^/  /' /tmp/cells
}
# Words for `run`: one write and one read of a second each.
short="--profile $carried/lab_proof.toml --size 32M --runtime 1 --ramp 0 --page-cache cold"
echo "kernel $(uname -r), $(qemu-system-x86_64 --version | head -n 1), $(fio --version)"
echo "$(nproc) × $(sed -n 's/^model name[^:]*: //p;T;q' /proc/cpuinfo)," \
    "nested paging $(cat /sys/module/kvm_amd/parameters/npt 2>/dev/null || echo missing)"
