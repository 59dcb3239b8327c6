"""One answer from many hosts: the host is the unit of replication."""
