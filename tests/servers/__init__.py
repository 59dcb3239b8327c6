"""Real servers of disks, each started by a test from Debian's packages and ended with it."""
