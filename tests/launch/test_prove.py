"""launch.prove on tiny models, with a server of the expected or of a different model."""

import re
import subprocess
from pathlib import Path

import pytest

from tests import programs
from tests.golden import recorder

pytestmark = pytest.mark.integration

GOLDEN = Path(__file__).parents[1] / "golden"
SIZES = [
    *("--updates=2", "--peak_preset=tiny", "--set=model.num_encoder_layers=1", "--set=model.num_decoder_layers=1"),
    *("--set=model.d_model=16", "--set=model.d_ff=32", "--set=model.num_heads=2", "--set=train.tokens_per_batch=500"),
]
PATIENCE = 1800  # seconds that six training runs may take on a busy machine
LINES = ["A man is walking.", "Two dogs play in the snow.", ""]


def prove(*flags: str) -> tuple[int, dict[str, list[str]], str]:
    """Returns the exit status, the rows of the report by check, and standard error."""
    completed = programs.run(["-m", "launch.prove", *flags], capture_output=True, text=True, timeout=PATIENCE)
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in completed.stdout.splitlines()[2:]]
    return completed.returncode, {check: cells for check, *cells in rows}, completed.stderr


@pytest.fixture(scope="module")
def golden_server(tmp_path_factory):
    """A folder with the golden export and a file of sentences, and the address of a server of the export."""
    folder = tmp_path_factory.mktemp("prove")
    (folder / "golden").mkdir()
    recorder.unpacked_export(GOLDEN / "export", folder / "golden" / "1")
    (folder / "in.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    command = ["-m", "launch.serve", f"--export_dir={folder / 'golden'}", "--rest_port=0", "--grpc_port=0"]
    with programs.Program(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            (address,) = re.findall(r"gRPC at ([^\s,]+)", server.stdout.readline())
            yield folder, address
        finally:
            server.terminate()


@pytest.mark.slow
def test_all_checks(golden_server):
    folder, address = golden_server
    serving = [f"--serving={address}", f"--model_dir={folder / 'golden'}", f"--input={folder / 'in.txt'}"]
    status, rows, errors = prove(*SIZES, *serving)
    assert status == 0, (rows, errors)
    outcomes = {check: outcome for check, (outcome, *_) in rows.items()}
    assert outcomes.pop("jax") in ("passed", "not run")
    assert outcomes == {"devices": "passed", "resume": "passed", "peak": "measured", "serving": "passed"}
    assert "1 replica on CPU and 2 replicas on CPU" in rows["devices"][1]
    share, rate = re.findall(r"float32: ([\d.]+) of ([\d,]+) GFLOP/s", rows["peak"][1])[0]
    assert 0 < float(share) < 1 and float(rate.replace(",", "")) > 1
    assert f"golden at {address}: 3 of 3 translations are equal" in rows["serving"][1]


def test_a_different_model_and_an_unknown_model_fail(golden_server):
    folder, address = golden_server
    base = ["--checks=", f"--input={folder / 'in.txt'}"]
    different = f"--model_dir={_different_run(folder)}"
    status, rows, _ = prove(*base, f"--serving={address}", different, "--served_model=golden")
    assert status == 1 and rows["serving"][0] == "failed"
    assert "1 of 3 translations are equal; line 1: the server returns" in rows["serving"][1]
    status, rows, _ = prove(*base, f"--serving={address}", different)
    assert status == 1 and rows["serving"][0] == "failed" and "NOT_FOUND" in rows["serving"][1]


def _different_run(folder: Path) -> Path:
    from tests.export import exporting

    return exporting.make_run(folder) if not (folder / "run").exists() else folder / "run"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--checks=speed"], "--checks=speed: valid: devices, resume, jax, peak"),
        (["--checks="], "give --checks or --serving"),
        ([f"--model_dir={GOLDEN}"], "--model_dir requires --serving"),
        (["--serving=localhost:1"], "--serving requires --model_dir"),
        (["--serving=localhost:1", f"--model_dir={GOLDEN / 'run'}"], "--serving requires --input"),
        (["--preset=tin"], "unknown preset 'tin'"),
        (["--set=train.max_steps=5"], "--set train.max_steps=5: the checks determine train.max_steps"),
    ],
)
def test_errors(flags, message):
    (result,) = programs.run_cases("launch.prove", [(flags, b"")])
    programs.assert_error(result, message)
