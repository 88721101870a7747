"""The peak memory of a process, without that of its parent."""

import os
import subprocess
import sys

# Forks with 300 MiB, as a large program does, and measures a small one.
LARGE_PARENT = """
import subprocess, sys
memory = bytearray(b"x" * (300 << 20))
command = [sys.executable, "-c", "from t2t_keras.machine.peak_memory import peak_bytes; print(peak_bytes())"]
subprocess.run(command, check=True, preexec_fn=lambda: None)
"""


def test_a_peak_does_not_include_the_memory_of_the_parent():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", LARGE_PARENT]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert 1 << 20 < int(done.stdout) < 200 << 20
