"""Campaigns on many hosts through Dask distributed, an optional dependency.

A task is one host's `vdisklab run`, as a child process. Dask only places it, keeps it in its place
and says whether the host is there; the numbers go from each host into one PostgreSQL. Nothing but
`vdisklab fleet` imports this package.
"""
