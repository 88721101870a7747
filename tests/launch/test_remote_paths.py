"""Programs whose data, runs and exports are in a bucket, of a server with S3's interface on this machine."""

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
KILLING = pathlib.Path(__file__).with_name("killing.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Text files, and a server with an empty bucket."""
    folder = tmp_path_factory.mktemp("remote")
    tiny_training.make_data(folder)
    with s3_server():
        yield folder


def call(folder: pathlib.Path, disk: str, program: str, *arguments: str, **environment: str):
    """Runs a program that has its mirrors on one of the disks, which is empty at first."""
    module = "tests.training.launch_quickly" if program == "train" else f"launch.{program}"
    return programs.run(
        ["-m", module, *arguments],
        capture_output=True,
        text=True,
        input="",
        env={**os.environ, "T2T_KERAS_CACHE": str(folder / disk), "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
    )


def succeed(folder: pathlib.Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    done = call(folder, *arguments, **environment)
    assert done.returncode == 0, done.stderr
    return done


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


def test_workers_on_other_machines_do_not_prepare_into_a_bucket(folder):
    texts = [f"--train_{side}={folder / f'train.{side}'}" for side in ("source", "target")]
    done = call(folder, "one", "prepare_data", *texts, f"--data_dir={BUCKET}/beam", "--beam_runner=FlinkRunner")
    assert done.returncode == 1
    message = f"error: --data_dir={BUCKET}/beam: the workers of FlinkRunner may be on other machines, which do not see"
    assert message in done.stderr and done.stderr.count("error: ") == 1


@pytest.fixture(scope="module")
def undisturbed(folder, prepared):
    """A run on this machine's disk, with the same data."""
    done = train(folder, "undisturbed", str(folder / "undisturbed_run"))
    assert done.returncode == 0, done.stderr
    return folder / "undisturbed_run"


@pytest.fixture(scope="module")
def killed(folder, prepared):
    """The ends of trainings of one run, each on an empty disk and killed in an upload, but for the last."""
    ends, killing = [], f"--extension={KILLING}"
    for number in (2, 6, 9):
        ends.append(train(folder, f"disk{number}", RUN, killing, UPLOADS=str(number)))
    return [*ends, train(folder, "last", RUN, killing)]


def fetched(url: str, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("T2T_KERAS_CACHE", str(folder / "reader"))
    mirror = Mirror(url)
    mirror.fetch()
    return mirror.path


def test_data_is_prepared_once(prepared):
    first, again = prepared
    assert "pairs kept" in first.stdout and "already prepared" in again.stdout


@pytest.fixture
def empty_url(tmp_path, monkeypatch):
    """A URL where nothing is; a folder of this machine."""
    monkeypatch.setenv("T2T_KERAS_CACHE", str(tmp_path / "cache"))
    return f"file://{tmp_path}/store/data"


def fetched_texts(url: str) -> dict[str, str]:
    mirror = Mirror(url)
    mirror.fetch()
    return {name: path.read_text(encoding="utf-8") for name, path in remote.files_of(mirror.path)}


def test_of_two_that_prepare_at_once_one_is_published(empty_url):
    """And not a mixture; if both are the same, nobody needs to know."""
    first = {"data.json": "first", "vocab.source.model": "first"}
    ends = [first, {"data.json": "second", "train.source.ids.npy": "second"}, first]
    with contextlib.ExitStack() as stack:
        contexts = [remote_paths.written(empty_url) for _ in ends]
        for context, texts in zip(contexts, ends, strict=True):
            folder = pathlib.Path(stack.enter_context(context))
            for name, text in texts.items():
                (folder / name).write_text(text, encoding="utf-8")
        stack.pop_all()
    said = f"^{empty_url}: another process published there meanwhile; its state is kept$"
    for context, refused in zip(contexts, (False, True, False), strict=True):
        with pytest.raises(InputError, match=said) if refused else contextlib.nullcontext():
            context.__exit__(None, None, None)
        assert fetched_texts(empty_url) == first


def test_data_that_was_deleted_in_the_store_is_prepared_anew(empty_url, tmp_path, monkeypatch):
    """What was never published is gone on with; a mirror that published or fetched is emptied."""
    monkeypatch.setattr(remote.fcntl, "flock", lambda *_: None)  # each is as a process after the last one ended

    def found(text: str | None) -> list[str]:
        with contextlib.suppress(InterruptedError), remote_paths.written(empty_url) as folder:
            before = [path.read_text(encoding="utf-8") for path in pathlib.Path(folder).iterdir()]
            pathlib.Path(folder, "data.json").write_text(text or "half", encoding="utf-8")
            if text is None:
                raise InterruptedError
        return before

    assert [found(text) for text in (None, "first", "first")] == [[], ["half"], ["first"]]
    shutil.rmtree(tmp_path / "store")
    assert found("second") == [] and fetched_texts(empty_url) == {"data.json": "second"}
    monkeypatch.setenv("T2T_KERAS_CACHE", str(tmp_path / "other"))
    with remote_paths.read(empty_url):
        shutil.rmtree(tmp_path / "store")
    assert found("third") == []


def test_killed_in_uploads_it_ends_as_if_undisturbed(folder, undisturbed, killed, monkeypatch):
    *ends, last = killed
    assert [done.returncode for done in ends] == [9] * len(ends) and last.returncode == 0, last.stderr
    assert re.search(rf"^{RUN} was being trained by process \d+ on .+; its lease is taken over$", last.stderr, re.M)
    path = fetched(RUN, folder, monkeypatch)
    tiny_training.assert_same_end(path, undisturbed, STEPS)
    assert tiny_training.saved_steps(path) == tiny_training.saved_steps(undisturbed)
    assert tiny_training.records(path, "valid") == tiny_training.records(undisturbed, "valid")
    assert json.loads((path / "config.json").read_text(encoding="utf-8"))["data_dir"] == DATA


@pytest.mark.slow
def test_it_is_evaluated_averaged_translated_exported_and_served(folder, killed, monkeypatch):
    """All from empty disks; the data is where the run says."""
    del killed
    model = f"--model_dir={RUN}"
    done = succeed(folder, "evaluate", "evaluate", model, "--split=valid", "--beam_size=1")
    assert f"written: {RUN}/evaluation/valid/hypotheses.txt" in done.stdout
    averaged = succeed(folder, "average", "average_checkpoints", model, "--average_last=2")
    assert averaged.stdout.splitlines()[-1] == f"{RUN}/checkpoints/averaged_last2"
    path = fetched(RUN, folder, monkeypatch)
    scores = json.loads((path / "evaluation" / "valid" / "scores.json").read_text(encoding="utf-8"))
    assert scores["settings"]["model_dir"] == RUN
    assert checkpoints.resolve(path / "checkpoints").name == "averaged_last2"
    for checkpoint in ([], ["--checkpoint=best"], [f"--checkpoint={STEPS}"]):
        succeed(folder, f"translate{checkpoint}", "translate", model, *checkpoint)
        arrays = [*(folder / f"translate{checkpoint}").rglob("*.npz")]
        assert {array.name for array in arrays} == {"weights.npz"} and len(arrays) == (1 if checkpoint else 2)
    missing = call(folder, "evaluate", "translate", model, "--checkpoint=3")
    assert missing.stderr.startswith(f"error: no checkpoint '3' in {RUN}/checkpoints; steps there: 8, 12;")
    done = succeed(folder, "export", "export", model, f"--export_dir={EXPORT}", "--beam_size=1")
    assert f"{EXPORT}/1: " in done.stdout
    succeed(folder, "translate_export", "translate", f"--model_dir={EXPORT}")
    succeed(folder, "translate_version", "translate", f"--model_dir={EXPORT}/1")
    with pytest.MonkeyPatch.context() as patch:  # an export was there before, which this machine has read
        patch.setenv("T2T_KERAS_CACHE", str(folder / "begins"))
        graph = Mirror(f"{BUCKET}/runs/second").path / "3" / "saved_model.pb"
        graph.parent.mkdir(parents=True)
        graph.touch()
    begun = train(folder, "begins", f"{BUCKET}/runs/second", f"--init_from={RUN}@best", "--set=train.max_steps=1")
    assert begun.returncode == 0, begun.stderr
    assert f"began with the weights of {RUN}/checkpoints/step_" in begun.stderr
    served(folder)


def served(folder: pathlib.Path) -> None:
    """A server on an empty disk answers, and answers with the next version once that is published."""
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


def test_two_trainers_of_one_run(folder, killed, monkeypatch):
    del killed
    monkeypatch.setenv("T2T_KERAS_CACHE", str(folder / "holder"))
    before = fetched(RUN, folder, monkeypatch)
    monkeypatch.setattr(remote, "_RENEWALS", 180)  # one a second: the other one waits until it sees it
    with Mirror(RUN).held(lambda line: None):
        done = train(folder, "second", RUN)
    assert done.returncode == 1
    holder = f"by process {os.getpid()} on .+, last heard of .+ s ago"
    assert re.search(f"^error: {RUN} is already being trained {holder}$", done.stderr, re.M)
    assert tiny_training.saved_steps(before) == tiny_training.saved_steps(fetched(RUN, folder, monkeypatch))


def test_what_cannot_be_is_one_line(folder, prepared, monkeypatch):
    nothing = "the bucket is missing, or it contains no complete run, prepared data or export there\n"
    for place in (f"{BUCKET}/none", "s3://none/run"):
        done = call(folder, "none", "translate", f"--model_dir={place}")
        assert (done.returncode, done.stderr) == (1, f"error: {place}: {nothing}")
    done = train(folder, "none", "s3://none/run")
    assert done.returncode == 1 and re.fullmatch("error: s3://none/run: no such bucket or folder: .+\n", done.stderr)
    with access_denied():
        done = train(folder, "none", f"{BUCKET}/denied")
    assert done.returncode == 1 and re.fullmatch(f"error: {DATA}: access denied: .+\n", done.stderr)
    done = train(folder, "none", RUN, AWS_ENDPOINT_URL="http://127.0.0.1:9")  # where nobody listens
    assert done.returncode == 69 and re.fullmatch(f"error: {DATA}: EndpointConnectionError: .+\n", done.stderr)
    done = call(folder, "none", "translate", f"--model_dir={RUN}", f"--output={BUCKET}/out.txt")
    assert done.returncode == 1 and done.stderr.startswith(
        f"error: --output={BUCKET}/out.txt is not a path of this machine"
    )
    assert remote.LEASE_SECONDS > 60  # what the killed ones changed was their own
