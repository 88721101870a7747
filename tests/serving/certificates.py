"""Certificates for tests, created with openssl."""

import pathlib
import shutil
import subprocess

import pytest


def make_certificate(folder: pathlib.Path) -> tuple[str, str]:
    """Writes a self-signed certificate for localhost and its key, and returns their paths."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate), "-days", "2"]
    subprocess.run([*command, *names, *files], check=True, capture_output=True)
    return str(certificate), str(key)
