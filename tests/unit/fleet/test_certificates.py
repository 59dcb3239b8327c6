"""The authority and its certificates: who is let in, and what is refused before anything starts."""

from __future__ import annotations

import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from vdisklab.errors import HostError
from vdisklab.fleet.certificates import VALID, FleetRole, find_certificates, make_certificates

NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls")
    make_certificates(directory, NOW)
    return directory


def test_openssl_verifies_each_certificate(directory: Path) -> None:
    for role in FleetRole:
        subprocess.run(
            ["openssl", "verify", "-x509_strict", "-CAfile", directory / "ca.pem",
             directory / f"{role}.pem"],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip


def test_keys_are_private(directory: Path) -> None:
    modes = {file.name: file.stat().st_mode & 0o777 for file in directory.iterdir()}
    assert modes.pop("ca.pem") == 0o644
    assert set(modes.values()) == {0o600}


def test_an_authority_is_not_overwritten(directory: Path) -> None:
    before = (directory / "ca.pem").read_bytes()
    with pytest.raises(HostError, match="exists already"):
        make_certificates(directory, NOW)
    assert (directory / "ca.pem").read_bytes() == before


def test_another_authority_is_refused(directory: Path, tmp_path: Path) -> None:
    make_certificates(tmp_path, NOW)
    verified = subprocess.run(
        ["openssl", "verify", "-CAfile", directory / "ca.pem", tmp_path / "worker.pem"],
        check=False, capture_output=True,
    )  # fmt: skip
    assert verified.returncode != 0


@pytest.mark.parametrize("role", list(FleetRole))
def test_each_role_finds_its_own(directory: Path, role: FleetRole) -> None:
    found = find_certificates(directory, role, NOW)
    context = ssl.create_default_context(cafile=found.authority)
    context.load_cert_chain(found.certificate)
    assert abs(found.until - NOW - VALID) < timedelta(seconds=2)


def test_what_is_missing_expired_or_open_is_named(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(HostError, match="missing or cannot be read"):
        find_certificates(tmp_path, FleetRole.WORKER, NOW)
    with pytest.raises(HostError, match="has expired on"):
        find_certificates(directory, FleetRole.WORKER, NOW + VALID + timedelta(days=1))
    for name in ("ca.pem", "worker.pem"):
        (tmp_path / name).write_bytes((directory / name).read_bytes())
    (tmp_path / "worker.pem").chmod(0o640)
    with pytest.raises(HostError, match="others can read"):
        find_certificates(tmp_path, FleetRole.WORKER, NOW)
    (tmp_path / "worker.pem").chmod(0o600)
    (tmp_path / "worker.pem").write_text("nonsense")
    with pytest.raises(HostError, match="holds no certificate"):
        find_certificates(tmp_path, FleetRole.WORKER, NOW)


def test_a_file_without_its_key_or_a_broken_authority_is_named(
    directory: Path, tmp_path: Path
) -> None:
    certificate = (directory / "worker.pem").read_text()
    (tmp_path / "ca.pem").write_bytes((directory / "ca.pem").read_bytes())
    (tmp_path / "worker.pem").write_text(certificate.partition("-----BEGIN PRIVATE")[0])
    (tmp_path / "worker.pem").chmod(0o600)
    with pytest.raises(HostError, match="no key that fits"):
        find_certificates(tmp_path, FleetRole.WORKER, NOW)
    (tmp_path / "worker.pem").write_text(certificate)
    find_certificates(tmp_path, FleetRole.WORKER, NOW)
    (tmp_path / "ca.pem").write_text("nonsense")
    with pytest.raises(HostError, match=r"ca\.pem holds no certificate"):
        find_certificates(tmp_path, FleetRole.WORKER, NOW)
