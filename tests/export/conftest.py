"""The model that all tests of this folder share: exported by launch.export and loaded by one separate process."""

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
    """The directory of the run and of its exports."""
    folder = tmp_path_factory.mktemp("export")
    exporting.make_run(folder)
    return folder


@pytest.fixture(scope="session")
def program_results(folder) -> dict[str, tuple[int, str, str]]:
    """Status, output and errors of launch.export for several sets of flags; the first one exports."""
    base = [f"--model_dir={folder / 'run'}", f"--export_dir={folder / 'saved_models' / 'tiny'}"]
    from_export = [f"--model_dir={folder / 'saved_models' / 'tiny'}", base[1]]
    cases = {
        "average": [*base, "--average_last=2"],
        "too_many": [*base, "--average_last=3"],
        "both": [*base, "--average_last=2", "--checkpoint=1"],
        "no_checkpoint": [*base, "--checkpoint=77"],
        "ensemble": [*base, f"--ensemble={folder / 'run'}@1"],
        "no_run": [f"--model_dir={folder / 'nothing'}", base[1]],
        "engine": [*base, "--engine=ctranslate2"],
        "beam": [*base, "--beam_size=1000"],
        "average_of_export": [*from_export, "--average_last=2"],
        "checkpoint_of_export": [*from_export, "--checkpoint=1"],
    }
    results = programs.run_cases("launch.export", [(arguments, b"") for arguments in cases.values()])
    return dict(zip(cases, results, strict=True))


@pytest.fixture(scope="session")
def version(folder, program_results) -> pathlib.Path:
    """The directory of the only exported version."""
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
    """The token ids of each line or of its first part; one line is blank."""
    return [t.source_ids[0] if t.num_parts else () for t in translator.translate(exporting.LINES)]


@pytest.fixture(scope="session")
def served_with_memory(translator, version, op_library, sources, tmp_path_factory) -> tuple[dict, dict]:
    """The outputs of all requests and the bytes by which memory grew for each, from a process without Keras.

    Both are dictionaries by the name of the request.
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
    assert modules == [], "the serving process must not import these modules"

    def by_request(values: list) -> dict:
        remaining = iter(values)
        return {
            name: [next(remaining) for _ in v] if isinstance(v, list) else next(remaining)
            for name, v in requests.items()
        }

    outputs, grown_bytes = map(by_request, answers)
    return outputs, grown_bytes


@pytest.fixture(scope="session")
def served(served_with_memory) -> dict:
    """The outputs of all requests, by name."""
    return served_with_memory[0]
