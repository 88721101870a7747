"""Runs a program of launch/ several times in one process, so that TensorFlow is imported once.

Flags of two programs cannot live in one process, hence not in that of the tests.

Usage: drive.py MODULE, with a JSON list of [arguments, standard input in base64] on standard
input; prints a JSON list of [exit status, standard output, standard error].
"""

import base64
import importlib
import io
import json
import os
import subprocess
import sys
import traceback


def run_cases(module: str, cases: list[tuple[list[str], bytes]]) -> list[tuple[int, str, str]]:
    """What each call of the program did: exit status, standard output, standard error."""
    request = json.dumps([[arguments, base64.b64encode(stdin).decode()] for arguments, stdin in cases])
    done = subprocess.run(
        [sys.executable, __file__, module],
        input=request.encode(),
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.getcwd(), "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    return [tuple(result) for result in json.loads(done.stdout.decode().splitlines()[-1])]


def _run(run, arguments: list[str], stdin: bytes) -> tuple[int, str, str]:
    from absl import flags

    for name in flags.FLAGS:
        flags.FLAGS[name].unparse()
    sys.argv = ["program", *arguments]
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    sys.stdout, sys.stderr = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    status = 0
    try:
        run()
    except SystemExit as exit:
        status = exit.code or 0
    except BaseException:
        traceback.print_exc()
        status = 1
    outputs = []
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        outputs.append(stream.buffer.getvalue().decode("utf-8"))
    return status, *outputs


def main() -> None:
    real_stdout = sys.stdout
    cases = json.load(sys.stdin)
    program = importlib.import_module(sys.argv[1])
    results = [_run(program.run, arguments, base64.b64decode(stdin)) for arguments, stdin in cases]
    print(json.dumps(results), file=real_stdout)


if __name__ == "__main__":
    main()
