"""Settings of Dask: encrypted only, and silent beside a measurement."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import dask
from distributed.security import Security

from vdisklab import __version__
from vdisklab.errors import PlanError
from vdisklab.fleet.certificates import Certificates, FleetRole
from vdisklab.host.state_directory import state_directory
from vdisklab.units import whole_number

DEFAULT_PORT = 8786

SETTINGS: Mapping[str, object] = {
    "distributed.comm.require-encryption": True,
    "distributed.comm.tls.min-version": 1.3,
    # Dask's background work: a stack sample each 10 ms, a probe of the GIL, a tick each 20 ms.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.admin.system-monitor.interval": "60s",
    "distributed.admin.tick.interval": "10s",
    "distributed.admin.tick.limit": "1h",
    "distributed.diagnostics.nvml": False,
    "distributed.worker.http.routes": [],
    "distributed.scheduler.http.routes": [],
    # A host's campaign is never moved, and never given up because its worker was killed.
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.allowed-failures": 1_000_000,
    "distributed.scheduler.no-workers-timeout": None,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.scheduler.worker-ttl": "2 minutes",
    "distributed.worker.daemon": True,
}


def apply_settings() -> None:
    """Applies the settings; call it before any part of Dask starts."""
    # Not in /tmp: the directory is added to Python's path. What a killed worker leaves in it, the
    # next one removes.
    dask.config.set({**SETTINGS, "temporary-directory": str(state_directory())})
    if not logging.getLogger().isEnabledFor(logging.DEBUG):  # --debug
        # Nodes report events themselves; Dask sets the level of two of these loggers itself.
        for name in ("distributed", "distributed.client", "distributed.gc", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def security_of(certificates: Certificates, role: FleetRole) -> Security:
    """Mutual TLS with these certificates: both ends show one of the authority's."""
    certificate = str(certificates.certificate)
    return Security(
        require_encryption=True,
        tls_ca_file=str(certificates.authority),
        **{f"tls_{role}_cert": certificate, f"tls_{role}_key": certificate},
    )


def check_address(address: str) -> str:
    """The address with its port (or the default one). Raises PlanError if it is not encrypted."""
    scheme, separator, rest = address.partition("://")
    if not separator or scheme != "tls" or not rest:
        raise PlanError(
            f"{address!r} is not an encrypted address",
            hint=f"write tls://HOST, or tls://HOST:PORT (default {DEFAULT_PORT})",
        )
    host, _, port = rest.rpartition(":")
    if rest.endswith("]") or not host:
        return f"tls://{rest}:{DEFAULT_PORT}"
    if (whole_number(port) or 0) >= 1 << 16 or whole_number(port) is None:
        raise PlanError(f"{port!r} is not a port", hint="write tls://HOST:PORT")
    return address


def own_versions() -> dict[str, str]:
    """The versions that all ends must share."""
    return {"vdisklab": __version__, "distributed": version("distributed")}


def version_difference(name: str, other: Mapping[str, Any] | None) -> str | None:
    """A sentence that names both versions if another end's differ; None if they are equal."""
    versions = own_versions()
    theirs = {key: str((other or {}).get(key, "unknown")) for key in versions}
    if theirs == versions:
        return None
    return f"{name} has {_listed(theirs)}, this end has {_listed(versions)}"


def _listed(versions: Mapping[str, str]) -> str:
    return " with ".join(f"{name} {text}" for name, text in versions.items())


def read_json(text: object) -> dict[str, Any]:
    """The JSON object in a text from another end; empty if it holds none."""
    try:
        value = json.loads(str(text))
    except (ValueError, RecursionError):  # RecursionError: nested without end
        return {}
    return value if isinstance(value, dict) else {}
