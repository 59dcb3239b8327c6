#!/usr/bin/busybox sh
# Shuts down a guest that booted from its disk, as a system does: flushes, makes the root file system
# read-only, powers off.
sync
mount -o remount,ro / || exit 1
exec poweroff -f
