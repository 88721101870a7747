"""Certificates for tests, made by openssl."""

import pathlib
import shutil
import subprocess

import pytest


def make_certificate(folder: pathlib.Path) -> tuple[str, str]:
    """Files with a certificate for localhost that is its own authority, and with its key."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate), "-days", "2"]
    subprocess.run([*command, *names, *files], check=True, capture_output=True)
    return str(certificate), str(key)
