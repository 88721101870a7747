"""Programs with data, runs and exports in a bucket of a local S3 server."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import urllib.request

import pytest

from launch import remote_paths
from t2t_keras.errors import InputError
from t2t_keras.machine import remote
from t2t_keras.machine.remote import Mirror
from t2t_keras.runs import checkpoints
from tests import programs
from tests.s3_server import BUCKET, access_denied, s3_server
from tests.training import tiny_training
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

STEPS = 12
DATA, RUN, EXPORT = f"{BUCKET}/data", f"{BUCKET}/runs/mine", f"{BUCKET}/exports/mine"
EXTENSION = pathlib.Path(__file__).with_name("exiting_extension.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Text files, and a server with an empty bucket."""
    folder = tmp_path_factory.mktemp("remote")
    tiny_training.make_data(folder)
    with s3_server():
        yield folder


def call(folder: pathlib.Path, disk: str, program: str, *arguments: str, **environment: str):
    """Runs a program whose mirrors are on a given disk, which is empty at first."""
    module = "tests.training.launch_quickly" if program == "train" else f"launch.{program}"
    return programs.run(
        ["-m", module, *arguments],
        capture_output=True,
        text=True,
        input="",
        env={**os.environ, "T2T_KERAS_CACHE": str(folder / disk), "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
    )


def succeed(folder: pathlib.Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    result = call(folder, *arguments, **environment)
    assert result.returncode == 0, result.stderr
    return result


def train(folder: pathlib.Path, disk: str, model_dir: str, *more: str, **environment: str):
    settings = {
        **{f"model.{name}": value for name, value in tiny_training.MODEL.items()},
        **{f"train.{name}": value for name, value in tiny_training.TRAIN.items()},
        **{"train.max_steps": STEPS, "train.keep_checkpoints": 2, "train.validation_steps": 8},
    }
    flags = [f"--data_dir={DATA}", "--preset=tiny", *(f"--set={name}={value}" for name, value in settings.items())]
    return call(folder, disk, "train", f"--model_dir={model_dir}", *flags, *more, **environment)


@pytest.fixture(scope="module")
def prepared(folder):
    texts = [
        f"--{split}_{side}={folder / f'{split}.{side}'}"
        for split in ("train", "valid")
        for side in ("source", "target")
    ]
    flags = [f"--vocab_size={tiny_training.VOCAB_SIZE}", "--processes=1", f"--data_dir={DATA}"]
    return [succeed(folder, disk, "prepare_data", *texts, *flags) for disk in ("one", "other")]


def test_distributed_preparation_into_a_bucket_is_rejected(folder):
    texts = [f"--train_{side}={folder / f'train.{side}'}" for side in ("source", "target")]
    result = call(folder, "one", "prepare_data", *texts, f"--data_dir={BUCKET}/beam", "--beam_runner=FlinkRunner")
    assert result.returncode == 1
    message = f"error: --data_dir={BUCKET}/beam: the workers of FlinkRunner may be on other machines, which do not see"
    assert message in result.stderr and result.stderr.count("error: ") == 1


@pytest.fixture(scope="module")
def uninterrupted(folder, prepared):
    """A run on the local disk, with the same data."""
    result = train(folder, "undisturbed", str(folder / "undisturbed_run"))
    assert result.returncode == 0, result.stderr
    return folder / "undisturbed_run"


@pytest.fixture(scope="module")
def killed(folder, prepared):
    """Trains one run several times, each time on an empty disk; all calls but the last are killed in an upload."""
    attempts, extension = [], f"--extension={EXTENSION}"
    for number in (2, 6, 9):
        attempts.append(train(folder, f"disk{number}", RUN, extension, UPLOADS=str(number)))
    return [*attempts, train(folder, "last", RUN, extension)]


def fetch(url: str, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("T2T_KERAS_CACHE", str(folder / "reader"))
    mirror = Mirror(url)
    mirror.fetch()
    return mirror.path


def test_data_is_prepared_once(prepared):
    first, again = prepared
    assert "pairs kept" in first.stdout and "already prepared" in again.stdout


@pytest.fixture
def empty_url(tmp_path, monkeypatch):
    """The URL of a local folder that does not exist yet."""
    monkeypatch.setenv("T2T_KERAS_CACHE", str(tmp_path / "cache"))
    return f"file://{tmp_path}/store/data"


def fetch_texts(url: str) -> dict[str, str]:
    mirror = Mirror(url)
    mirror.fetch()
    return {name: path.read_text(encoding="utf-8") for name, path in remote.files_of(mirror.path)}


def test_concurrent_preparation_publishes_one_result(empty_url):
    """The published data are never a mixture, and a process that prepared the same data succeeds."""
    first = {"data.json": "first", "vocab.source.model": "first"}
    attempts = [first, {"data.json": "second", "train.source.ids.npy": "second"}, first]
    with contextlib.ExitStack() as stack:
        contexts = [remote_paths.written(empty_url) for _ in attempts]
        for context, texts in zip(contexts, attempts, strict=True):
            folder = pathlib.Path(stack.enter_context(context))
            for name, text in texts.items():
                (folder / name).write_text(text, encoding="utf-8")
        stack.pop_all()
    expected_error = f"^{empty_url}: another process has published there in the meantime; its state is kept$"
    for context, refused in zip(contexts, (False, True, False), strict=True):
        with pytest.raises(InputError, match=expected_error) if refused else contextlib.nullcontext():
            context.__exit__(None, None, None)
        assert fetch_texts(empty_url) == first


def test_data_deleted_from_the_store_are_prepared_again(empty_url, tmp_path, monkeypatch):
    """Preparation resumes unpublished data, and empties a mirror whose data were published or fetched."""
    monkeypatch.setattr(remote.fcntl, "flock", lambda *_: None)  # as if each call were a new process

    def prepare_again(text: str | None) -> list[str]:
        with contextlib.suppress(InterruptedError), remote_paths.written(empty_url) as folder:
            before = [path.read_text(encoding="utf-8") for path in pathlib.Path(folder).iterdir()]
            pathlib.Path(folder, "data.json").write_text(text or "half", encoding="utf-8")
            if text is None:
                raise InterruptedError
        return before

    assert [prepare_again(text) for text in (None, "first", "first")] == [[], ["half"], ["first"]]
    shutil.rmtree(tmp_path / "store")
    assert prepare_again("second") == [] and fetch_texts(empty_url) == {"data.json": "second"}
    monkeypatch.setenv("T2T_KERAS_CACHE", str(tmp_path / "other"))
    with remote_paths.read(empty_url):
        shutil.rmtree(tmp_path / "store")
    assert prepare_again("third") == []


def test_training_killed_during_uploads_equals_uninterrupted_training(folder, uninterrupted, killed, monkeypatch):
    *attempts, last = killed
    assert [result.returncode for result in attempts] == [9] * len(attempts) and last.returncode == 0, last.stderr
    assert re.search(rf"^{RUN} was being trained by process \d+ on .+; its lease is taken over$", last.stderr, re.M)
    path = fetch(RUN, folder, monkeypatch)
    tiny_training.assert_same_end(path, uninterrupted, STEPS)
    assert tiny_training.saved_steps(path) == tiny_training.saved_steps(uninterrupted)
    assert tiny_training.records(path, "valid") == tiny_training.records(uninterrupted, "valid")
    assert json.loads((path / "config.json").read_text(encoding="utf-8"))["data_dir"] == DATA


@pytest.mark.slow
def test_programs_read_and_write_runs_in_a_bucket(folder, killed, monkeypatch):
    """Each program starts with an empty disk, and finds the data through the run."""
    del killed
    model = f"--model_dir={RUN}"
    result = succeed(folder, "evaluate", "evaluate", model, "--split=valid", "--beam_size=1")
    assert f"written: {RUN}/evaluation/valid/hypotheses.txt" in result.stdout
    averaged = succeed(folder, "average", "average_checkpoints", model, "--average_last=2")
    assert averaged.stdout.splitlines()[-1] == f"{RUN}/checkpoints/averaged_last2"
    path = fetch(RUN, folder, monkeypatch)
    scores = json.loads((path / "evaluation" / "valid" / "scores.json").read_text(encoding="utf-8"))
    assert scores["settings"]["model_dir"] == RUN
    assert checkpoints.resolve(path / "checkpoints").name == "averaged_last2"
    for checkpoint in ([], ["--checkpoint=best"], [f"--checkpoint={STEPS}"]):
        succeed(folder, f"translate{checkpoint}", "translate", model, *checkpoint)
        arrays = [*(folder / f"translate{checkpoint}").rglob("*.npz")]
        assert {array.name for array in arrays} == {"weights.npz"} and len(arrays) == (1 if checkpoint else 2)
    missing = call(folder, "evaluate", "translate", model, "--checkpoint=3")
    assert missing.stderr.startswith(f"error: no checkpoint '3' in {RUN}/checkpoints; steps there: 8, 12;")
    result = succeed(folder, "export", "export", model, f"--export_dir={EXPORT}", "--beam_size=1")
    assert f"{EXPORT}/1: " in result.stdout
    succeed(folder, "translate_export", "translate", f"--model_dir={EXPORT}")
    succeed(folder, "translate_version", "translate", f"--model_dir={EXPORT}/1")
    with pytest.MonkeyPatch.context() as patch:  # as if this machine had read an export from there before
        patch.setenv("T2T_KERAS_CACHE", str(folder / "begins"))
        graph = Mirror(f"{BUCKET}/runs/second").path / "3" / "saved_model.pb"
        graph.parent.mkdir(parents=True)
        graph.touch()
    started = train(folder, "begins", f"{BUCKET}/runs/second", f"--init_from={RUN}@best", "--set=train.max_steps=1")
    assert started.returncode == 0, started.stderr
    assert f"starts from the weights of {RUN}/checkpoints/step_" in started.stderr
    check_server(folder)


def check_server(folder: pathlib.Path) -> None:
    """Starts a server on an empty disk, which serves the export and then its next version."""
    flags = [f"--export_dir={EXPORT}", "--rest_port=0", "--grpc_port=0", "--poll_seconds=0.2"]
    environment = {**os.environ, "T2T_KERAS_CACHE": str(folder / "serve")}
    with programs.Program(
        ["-m", "launch.serve", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as server:
        try:
            assert server.stdout
            line = server.stdout.readline()
            assert line.startswith("serving mine (version 1): "), line + server.communicate(timeout=600)[1]
            address = re.findall(r"http://\S+(?=,)", line)[0]
            succeed(folder, "export", "export", f"--model_dir={RUN}", f"--export_dir={EXPORT}", "--beam_size=1")
            wait_until(lambda: "AVAILABLE" in get(f"{address}/v1/models/mine/versions/2"))
            assert json.loads(get(f"{address}/v1/models/mine:predict", b'{"instances": ["ba da"]}'))["predictions"]
        finally:
            server.terminate()
            server.communicate(timeout=600)


def get(url: str, data: bytes | None = None) -> str:
    try:
        with urllib.request.urlopen(url, data) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.reason


def test_errors(folder, prepared, monkeypatch):
    nothing = "the bucket is missing, or it contains no complete run, prepared data or export there\n"
    for place in (f"{BUCKET}/none", "s3://none/run"):
        result = call(folder, "none", "translate", f"--model_dir={place}")
        assert (result.returncode, result.stderr) == (1, f"error: {place}: {nothing}")
    result = train(folder, "none", "s3://none/run")
    assert result.returncode == 1 and re.fullmatch(
        "error: s3://none/run: no such bucket or folder: .+\n", result.stderr
    )
    with access_denied():
        result = train(folder, "none", f"{BUCKET}/denied")
    assert result.returncode == 1 and re.fullmatch(f"error: {DATA}: access denied: .+\n", result.stderr)
    result = train(folder, "none", RUN, AWS_ENDPOINT_URL="http://127.0.0.1:9")  # no server listens there
    assert result.returncode == 69 and re.fullmatch(f"error: {DATA}: EndpointConnectionError: .+\n", result.stderr)
    result = call(folder, "none", "translate", f"--model_dir={RUN}", f"--output={BUCKET}/out.txt")
    assert result.returncode == 1 and result.stderr.startswith(
        f"error: --output={BUCKET}/out.txt is not a path of this machine"
    )
    assert remote.LEASE_SECONDS > 60  # the killed processes changed only their own copy
