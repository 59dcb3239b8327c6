#!/usr/bin/busybox sh
# Ends a guest that has booted from a disk as a system does: nothing is left to be written, the
# root file system is closed, the power is off.
sync
mount -o remount,ro / || exit 1
exec poweroff -f
