"""Trainings of several processes: equal to those of one process, with common decisions and clear errors."""

import functools
import os
import pathlib
import re
import signal
import time

import pytest
import tensorflow as tf

from t2t_keras.errors import AwayError, InputError
from t2t_keras.runs import checkpoints
from t2t_keras.runs.records import read_metrics
from t2t_keras.runs.run import Run
from t2t_keras.training.devices.cluster import WorkerLostError
from t2t_keras.training.devices.workers import Workers
from tests import programs
from tests.training import tiny_training, worker_processes
from tests.training.tiny_training import assert_same_end, assert_same_numbers, records, saved_steps
from tests.training.worker_processes import running

pytestmark = pytest.mark.integration

STEPS = 300
SIZES = {"max_steps": STEPS, "checkpoint_steps": 20, "validation_steps": 100, "keep_checkpoints": 3}
LONGER = {
    "train__max_steps": 150,
    "train__validation_steps": 75,
    "train__validation_sentences": 19,
    "train__best_metric": "bleu",
    "train__ema_decay": 0.9,
    "train__accumulation_steps": 2,
    "train__tokens_per_batch": 400,
    "model__dropout_rate": 0.1,
    "model__use_attention_bias": False,
    "model__norm_position": "pre",
}
SECONDS_TO_NOTICE = 60  # to notice a lost worker
QUICKLY = (str(worker_processes.HERE / "launch_quickly.py"),)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tiny_training.make_data(tmp_path_factory.mktemp("workers"))


@pytest.fixture(scope="module")
def make_flags(data):
    """Returns a function that makes the flags of a run: those of the tiny training, with some changes."""

    def make(model_dir: pathlib.Path, **changes: object) -> list[str]:
        plain = tiny_training.launch_flags(model_dir, data, model={"dropout_rate": 0.3}, **SIZES)
        return plain + [f"--set={name.replace('__', '.')}={value}" for name, value in changes.items()]

    return make


@pytest.fixture
def eager():
    """For a few steps, eager execution is faster than tracing."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def train_alone(flags: list[str], replicas: int) -> None:
    """Trains in one process on logical devices."""
    command = ["-m", "launch.train", "--strategy=cpu", f"--replicas={replicas}", *flags]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    programs.run(command, cwd=worker_processes.ROOT, env=environment, check=True, capture_output=True, timeout=1200)


def train_together(count: int, flags: list[str], folder: pathlib.Path, environments=None) -> None:
    with running([flags] * count, folder, environments) as workers:
        assert workers.end() == [0] * count, workers.output(0) + workers.output(1)


def step_of(model_dir: pathlib.Path) -> int:
    """Returns the number of steps in the metrics so far."""
    return max((record["step"] for record in read_metrics(Run(model_dir).metrics_path)), default=0)


@pytest.mark.parametrize(("error", "kind"), [(AwayError("s3://a is away"), AwayError), (OSError("full"), InputError)])
def test_the_error_of_one_worker_ends_all(monkeypatch, error, kind):
    first, second = (Workers(tf.distribute.get_strategy()) for _ in range(2))
    first.count = second.count = 2
    sent = []
    monkeypatch.setattr(first, "gather", lambda data: sent.append(data) or [data, b""])
    monkeypatch.setattr(second, "gather", lambda data: [*sent, data])
    with pytest.raises(type(error), match=f"^{error}$"), first.fail_together():
        raise error
    with pytest.raises(InputError, match=f"^worker 0 failed: {error}$") as caught, second.fail_together():
        pass
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("error", "is_lost"),
    [
        (tf.errors.UnavailableError(None, None, "Socket closed"), True),
        (tf.errors.DeadlineExceededError(None, None, "no answer"), True),
        (tf.errors.InternalError(None, None, "Collective ops is aborted by: Error reported from task:1"), True),
        (tf.errors.ResourceExhaustedError(None, None, "Graph\nCollective ops is aborted by: OOM at task:1"), True),
        (tf.errors.UnknownError(None, None, "NCCL: remote process exited or there was a network error"), True),
        # A problem of this worker itself.
        (tf.errors.ResourceExhaustedError(None, None, "no memory left"), False),
        (tf.errors.InternalError(None, None, "cuDNN launch failure"), False),
        (tf.errors.UnknownError(None, None, "OSError: [Errno 5] Input/output error"), False),
        (tf.errors.PermissionDeniedError(None, None, "events.out.tfevents; Permission denied"), False),
    ],
)
def test_what_counts_as_a_lost_worker(error, is_lost):
    workers = Workers(tf.distribute.get_strategy())
    workers.count = 2
    with pytest.raises(WorkerLostError if is_lost else type(error)), workers.raising_worker_lost():
        raise error


def test_two_workers_equal_one_process_and_the_first_one_writes(tmp_path, data, make_flags, eager):
    """The second worker has a separate directory, which must not be created."""
    settings = {"max_steps": 4, "checkpoint_steps": 2, "validation_steps": 4}
    changes = {"model__dropout_rate": 0.0, **{f"train__{name}": value for name, value in settings.items()}}
    flags = [make_flags(tmp_path / name, **changes) for name in ("first", "second")]
    with running(flags, tmp_path, program=QUICKLY) as workers:
        assert workers.end() == [0, 0], workers.output(0) + workers.output(1)
        outputs = [workers.output(0), workers.output(1)]
    assert outputs[0].splitlines()[-1] == outputs[1].splitlines()[-1] == "step 4: reached train.max_steps"
    assert tiny_training.train(tmp_path / "alone", data, model={"dropout_rate": 0.0}, **settings).step == 4
    assert_same_numbers(tmp_path / "first", tmp_path / "alone")
    assert saved_steps(tmp_path / "first") == [2, 4]
    assert not (tmp_path / "second").exists()


@pytest.fixture(scope="module")
def replicas_of_one_process(tmp_path_factory, make_flags):
    """Returns a function that trains in one process on logical devices and returns the run's directory."""

    @functools.cache
    def run(count: int) -> pathlib.Path:
        model_dir = tmp_path_factory.mktemp("alone") / "run"
        train_alone(make_flags(model_dir, **LONGER), count)
        return model_dir

    return run


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("cluster", ["tf_config", "slurm", "kubernetes"])
def test_workers_equal_replicas_of_one_process(tmp_path, make_flags, replicas_of_one_process, cluster, count):
    """Includes dropout, moving averages, BLEU and accumulation."""
    flags = make_flags(tmp_path / "run", **LONGER)
    if cluster == "kubernetes":
        if not worker_processes.has_pods():
            pytest.skip("needs namespaces of Linux: unshare, ip")
        worker_processes.run_pods(count, flags, tmp_path)
    else:
        environments = getattr(worker_processes, cluster)(count)
        train_together(count, [*flags, f"--cluster={cluster}"], tmp_path, environments)
    alone = replicas_of_one_process(count)
    assert_same_numbers(tmp_path / "run", alone)
    assert records(tmp_path / "run", "valid")[-1]["bleu"] > 0
    steps = [checkpoints.best(Run(path).checkpoints_path).step for path in (tmp_path / "run", alone)]
    assert steps[0] == steps[1]


@pytest.mark.slow
@pytest.mark.parametrize("number, status", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_waiting_worker_reports_it_and_can_be_stopped(tmp_path, make_flags, number, status):
    environment = worker_processes.tf_config(2)[1]
    with running([make_flags(tmp_path / "run")], tmp_path, [environment]) as workers:
        workers.wait_for(lambda: "worker 1 waits for worker 0 (127.0.0.1:" in workers.output(0))
        workers.processes[0].send_signal(number)
        assert workers.end(30) == [status]
        assert "Traceback" not in workers.output(0)


@pytest.mark.slow
def test_stopped_and_killed_workers_resume_without_a_difference(tmp_path, make_flags):
    """Sends SIGKILL to either worker, and SIGTERM to one and to all: each time, all stop and resume together."""
    flags = make_flags(tmp_path / "run", train__ema_decay=0.9)

    def until(step: int, signals: dict[int, signal.Signals]) -> tuple[list[int], list[str], float]:
        """Sends each worker its signal at a step; returns the statuses, the last lines and the seconds."""
        with running([flags] * 2, tmp_path / f"until_{step}") as workers:
            workers.wait_for(lambda: step_of(tmp_path / "run") >= step)
            for index, number in signals.items():
                workers.processes[index].send_signal(number)
            start_time = time.monotonic()
            statuses = workers.end()
            seconds = time.monotonic() - start_time
            return statuses, [workers.output(i).strip().rpartition("\n")[-1] for i in range(2)], seconds

    for victim, step in ((1, 50), (0, 90)):
        statuses, lines, seconds = until(step, {victim: signal.SIGKILL})
        other = 1 - victim
        assert statuses[victim] == -signal.SIGKILL
        assert statuses[other] == 75, lines[other]
        assert "another worker ended or cannot be reached" in lines[other]
        assert seconds < SECONDS_TO_NOTICE

    for signals, step in (({1: signal.SIGTERM}, 130), (dict.fromkeys(range(2), signal.SIGTERM), 170)):
        statuses, lines, _ = until(step, signals)
        assert statuses == [128 + signal.SIGTERM] * 2, lines
        assert lines[0] == lines[1]
        stopped_at = int(re.match(r"step (\d+): stopped by SIGTERM", lines[0])[1])
        assert saved_steps(tmp_path / "run")[-1] == stopped_at
        assert step_of(tmp_path / "run") == stopped_at

    train_together(2, flags, tmp_path / "end")
    train_together(2, make_flags(tmp_path / "uninterrupted", train__ema_decay=0.9), tmp_path / "uninterrupted_logs")
    assert_same_end(tmp_path / "run", tmp_path / "uninterrupted", STEPS)
    assert [line["step"] for line in records(tmp_path / "run", "train")] == list(range(1, STEPS + 1))
    assert not list(Run(tmp_path / "run").checkpoints_path.glob(".*"))


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_worker_that_dies_while_the_others_start(tmp_path, make_flags, victim):
    """Tests the time before the first step, at any point of the others' start."""
    with running([make_flags(tmp_path / "run")] * 3, tmp_path) as workers:
        workers.wait_for(lambda: (tmp_path / "run" / "config.json").exists())
        workers.processes[victim].kill()
        start_time = time.monotonic()
        statuses = workers.end()
        assert time.monotonic() - start_time < SECONDS_TO_NOTICE
    for index, status in enumerate(statuses):
        assert status == (-signal.SIGKILL if index == victim else 75), workers.output(index)


@pytest.mark.slow
def test_a_worker_that_hangs_is_as_good_as_gone(tmp_path, make_flags):
    with running([make_flags(tmp_path / "run", train__max_steps=100000)] * 2, tmp_path) as workers:
        workers.wait_for(lambda: step_of(tmp_path / "run") >= 10)
        workers.processes[1].send_signal(signal.SIGSTOP)
        assert workers.processes[0].wait(SECONDS_TO_NOTICE) == 75
        assert "another worker ended or cannot be reached" in workers.output(0).splitlines()[-1]


@pytest.mark.slow
def test_limits_and_patience_end_all_at_the_same_step(tmp_path, make_flags):
    changes = {"train__max_steps": 100000, "train__patience": 2, "train__validation_steps": 5}
    # Without learning, no validation is better than the first.
    patient = make_flags(tmp_path / "patience", train__learning_rate_scale=1e-30, **changes)
    timed = make_flags(tmp_path / "minutes", train__max_steps=100000, train__max_minutes=0.05)
    minutes = {"train__checkpoint_minutes": 0.01, "train__keep_checkpoints": 100}
    timed += [f"--set={name.replace('__', '.')}={value}" for name, value in minutes.items()]
    for flags, words in ((patient, "no better validation loss"), (timed, "reached train.max_minutes")):
        with running([flags] * 2, tmp_path / words) as workers:
            assert workers.end() == [0, 0], workers.output(0) + workers.output(1)
            lines = [workers.output(index).splitlines()[-1] for index in range(2)]
        assert lines[0] == lines[1]
        assert words in lines[0]
    assert saved_steps(tmp_path / "patience")[-1] == 15
    assert len(saved_steps(tmp_path / "minutes")) > 2


@pytest.mark.slow
def test_settings_that_workers_must_share(tmp_path, make_flags):
    """Workers must share the directory, the settings and a new run; otherwise each ends with one line."""
    short = {"train__max_steps": 4, "train__checkpoint_steps": 4}
    train_together(2, make_flags(tmp_path / "run", **short), tmp_path)
    longer = {**short, "train__max_steps": 8}
    elsewhere = [make_flags(tmp_path / name, **longer) for name in ("run", "other")]
    settings = [make_flags(tmp_path / "run", **longer, train__log_steps=log_steps) for log_steps in (1, 2)]
    another = [make_flags(tmp_path / "run", **longer, train__warmup_steps=7)] * 2
    for flags, words in (
        (elsewhere, ["worker 0 sees step 4, worker 1 sees none"] * 2),
        (settings, ["error: worker 1 failed: worker 1 has different settings than", "train.log_steps: 1 -> 2"]),
        (another, ["a different configuration", "error: worker 0 failed: "]),
    ):
        with running(flags, tmp_path / words[0], program=QUICKLY) as workers:
            assert workers.end() == [1, 1]
            for index in range(2):
                assert words[index] in workers.output(index).splitlines()[-1]
                assert "Traceback" not in workers.output(index)
    assert saved_steps(tmp_path / "run") == [4]


@pytest.mark.slow
def test_a_checkpoint_of_two_workers_resumes_in_one_process(tmp_path, make_flags):
    changes = {"model__dropout_rate": 0.0, "train__validation_steps": 5}
    half = make_flags(tmp_path / "run", **changes, train__max_steps=10)
    train_together(2, half, tmp_path)
    flags_of_runs = [make_flags(tmp_path / name, **changes, train__max_steps=20) for name in ("run", "alone")]
    for flags in flags_of_runs:
        train_alone(flags, 1)
    assert_same_numbers(tmp_path / "run", tmp_path / "alone")
