"""One exported model for all tests of this folder, written by the program and served by one process."""

import pathlib
import pickle
import subprocess
import sys

import pytest

from tests import programs
from tests.export import exporting

HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="session")
def translator():
    return exporting.translator()


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> pathlib.Path:
    """The folder of the run and of its export."""
    folder = tmp_path_factory.mktemp("export")
    exporting.make_run(folder)
    return folder


@pytest.fixture(scope="session")
def program_results(folder) -> dict[str, tuple[int, str, str]]:
    """The status, output and errors of the program with several sets of flags; the first set exports the model."""
    base = [f"--model_dir={folder / 'run'}", f"--export_dir={folder / 'saved_models' / 'tiny'}"]
    exported = [f"--model_dir={folder / 'saved_models' / 'tiny'}", base[1]]
    cases = {
        "average": [*base, "--average_last=2"],
        "too_many": [*base, "--average_last=3"],
        "both": [*base, "--average_last=2", "--checkpoint=1"],
        "no_checkpoint": [*base, "--checkpoint=77"],
        "ensemble": [*base, f"--ensemble={folder / 'run'}@1"],
        "no_run": [f"--model_dir={folder / 'nothing'}", base[1]],
        "engine": [*base, "--engine=ctranslate2"],
        "beam": [*base, "--beam_size=1000"],
        "average_of_export": [*exported, "--average_last=2"],
        "checkpoint_of_export": [*exported, "--checkpoint=1"],
    }
    results = programs.run_cases("launch.export", [(arguments, b"") for arguments in cases.values()])
    return dict(zip(cases, results, strict=True))


@pytest.fixture(scope="session")
def version(folder, program_results) -> pathlib.Path:
    """The directory of the exported model's only version."""
    assert program_results["average"][0] == 0, program_results["average"]
    return folder / "saved_models" / "tiny" / "1"


@pytest.fixture(scope="session")
def op_library() -> str:
    """The path of the library with the SentencePiece operations."""
    import tensorflow_text

    (path,) = pathlib.Path(tensorflow_text.__file__).parent.rglob("_sentencepiece_tokenizer.so")
    return str(path)


@pytest.fixture(scope="session")
def sources(translator) -> list[tuple[int, ...]]:
    """The token ids of all lines, or of their first parts; one line is blank."""
    return [t.source_ids[0] if t.num_parts else () for t in translator.translate(exporting.LINES)]


@pytest.fixture(scope="session")
def served_at_cost(translator, version, op_library, sources, tmp_path_factory) -> tuple[dict, dict]:
    """The outputs of all requests, by request and output name, and the increase in memory in bytes for each request.

    The process that serves the requests does not import Keras.
    """
    requests = {**exporting.requests(sources), "warmup": exporting.warmup_requests(version)}
    flat = [request for value in requests.values() for request in (value if isinstance(value, list) else [value])]
    folder = tmp_path_factory.mktemp("requests")
    files = [folder / "requests", folder / "results"]
    files[0].write_bytes(pickle.dumps(flat))
    command = [sys.executable, HERE / "serve_v1.py", op_library, version, *files]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    *answers, modules = pickle.loads(files[1].read_bytes())
    assert modules == [], "the process that serves must not import these"

    def named(values: list) -> dict:
        rest = iter(values)
        return {name: [next(rest) for _ in v] if isinstance(v, list) else next(rest) for name, v in requests.items()}

    outputs, costs = map(named, answers)
    return outputs, costs


@pytest.fixture(scope="session")
def served(served_at_cost) -> dict:
    """The outputs of all requests."""
    return served_at_cost[0]
