"""A private certificate authority, and the certificates of scheduler, workers and client."""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from vdisklab.errors import HostError
from vdisklab.host.safe_places import make_directory, open_file
from vdisklab.host.writing import acting, writable
from vdisklab.value import Value

VALID = timedelta(days=825)
AUTHORITY_VALID = timedelta(days=3650)
_AUTHORITY = "ca.pem"
_AUTHORITY_KEY = "ca-key.pem"


class FleetRole(StrEnum):
    """Who a certificate is for."""

    SCHEDULER = "scheduler"
    WORKER = "worker"
    CLIENT = "client"


class Certificates(Value):
    """The files that one role needs: the authority, and its own certificate with its key."""

    authority: Path
    certificate: Path
    until: datetime


def make_certificates(directory: Path, now: datetime) -> tuple[Path, ...]:
    """Creates the authority and a certificate for each role; returns the files.

    Keys are readable by their owner only. Raises HostError if a file exists already: a new
    authority would lock out all hosts that have the old one.
    """
    try:
        target = writable(directory, "the directory", "choose another one")
        with acting(target.rights):
            make_directory(directory, "the directory", "choose another one", 0o700)
            existing = [name for name in _names() if (directory / name).exists()]
            if existing:
                raise HostError(
                    f"{directory / existing[0]} exists already",
                    hint="choose another directory; hosts with the old certificates trust no new "
                    "ones",
                )
            return tuple(_written(directory, now))
    except OSError as error:
        raise HostError(
            f"{directory} cannot be written: {error.strerror}", hint="choose another directory"
        ) from error


def _names() -> tuple[str, ...]:
    return (_AUTHORITY, _AUTHORITY_KEY, *(f"{role}.pem" for role in FleetRole))


def _written(directory: Path, now: datetime) -> Iterator[Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _named("vdisklab fleet")
    authority = (
        _builder(name, name, key.public_key(), now, AUTHORITY_VALID)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    yield _private(directory / _AUTHORITY_KEY, _pem_of(key))
    public = authority.public_bytes(serialization.Encoding.PEM)
    yield _private(directory / _AUTHORITY, public, mode=0o644)
    for role in FleetRole:
        key_pair = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(_named(f"vdisklab {role}"), name, key_pair.public_key(), now, VALID)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
            )
            .add_extension(
                # Dask does not check names: the authority alone decides who belongs to the fleet.
                x509.SubjectAlternativeName(
                    [x509.DNSName(role), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
                ),
                critical=False,
            )
            .sign(key, hashes.SHA256())
        )
        both = certificate.public_bytes(serialization.Encoding.PEM) + _pem_of(key_pair)
        yield _private(directory / f"{role}.pem", both)


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    valid: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks differ
        .not_valid_after(now + valid)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    pem: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return pem


def _private(file: Path, content: bytes, mode: int = 0o600) -> Path:
    """Writes a new file, created with its final permissions."""
    descriptor = open_file(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
    return file


def find_certificates(directory: Path, role: FleetRole, now: datetime) -> Certificates:
    """The files of one role.

    Raises HostError if one is missing, expired, readable by others, or cannot be used.
    """
    authority, certificate = directory / _AUTHORITY, directory / f"{role}.pem"
    for file in (authority, certificate):
        if not os.access(file, os.R_OK):
            raise HostError(
                f"{file} is missing or cannot be read, and without certificates nothing is sent",
                hint=f"make them once with `vdisklab fleet certificates DIR` and copy {file.name} "
                f"to {directory}, or name another directory with --tls",
            )
    if certificate.stat().st_mode & 0o077:
        raise HostError(
            f"{certificate} holds a key that others can read", hint=f"chmod 600 {certificate}"
        )
    try:
        until = x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc
    except ValueError as error:
        raise HostError(
            f"{certificate} holds no certificate", hint="copy it again from where it was made"
        ) from error
    if until <= now.astimezone(UTC):
        raise HostError(
            f"the certificate {certificate} has expired on {until:%Y-%m-%d}",
            hint="make new ones for the whole fleet: vdisklab fleet certificates DIR",
        )
    try:
        ssl.create_default_context(cafile=authority).load_cert_chain(certificate, password="")
    except ssl.SSLError as error:
        raise HostError(
            f"{authority} holds no certificate, or {certificate} no key that fits its own",
            hint="copy both again from where they were made",
        ) from error
    return Certificates(authority, certificate, until)
