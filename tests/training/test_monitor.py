"""The monitor records each step once, also after a resumption."""

import contextlib
import errno
import io
import json
import sys

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from t2t_keras.models import presets
from t2t_keras.runs.records import RecordFile, read_metrics
from t2t_keras.runs.run import Run
from t2t_keras.training.monitor import Interval, Monitor
from t2t_keras.training.updates import StepMetrics
from tests import programs


@pytest.fixture
def with_curves() -> None:
    """Enables curves, which take as long as all other work of a monitor."""
    programs.set_quick_mode(False)


def log(
    monitor,
    step: int,
    loss: float | None = None,
    gradient_norm: float = 1.5,
    expected_steps: int = 100,
    **measures: float,
):
    tokens, loss = 4000, 8 - step / 100 if loss is None else loss
    sums = {name: tokens * value for name, value in measures.items()}
    interval = Interval(tokens * loss, tokens, 5.0, sums)
    interval.learning_rate, interval.gradient_norm = 1e-4, gradient_norm
    monitor.log_training(step, expected_steps, interval)


def steps_and_kinds(run: Run) -> list[tuple[int, str]]:
    return [(record["step"], record["kind"]) for record in read_metrics(run.metrics_path)]


def scalar_steps(run: Run, name: str) -> list[int]:
    events = EventAccumulator(str(run.tensorboard_path))
    events.Reload()
    # The names of files of one second and process have numbers, and 10 sorts before 9.
    return sorted(event.step for event in events.Tensors(name))


def test_records(tmp_path, capsys):
    run = Run(tmp_path / "run")
    monitor = Monitor(run, total_steps=100)
    log(monitor, 10)
    log(monitor, 30, embedding_norm=2)
    monitor.log_validation(30, loss=6.0, perplexity=403.4, bleu=None)
    # The file can be read during training.
    assert read_metrics(run.metrics_path) == [json.loads(line) for line in run.metrics_path.read_text().splitlines()]
    first, second, validation = read_metrics(run.metrics_path)
    assert first == {
        "step": 10,
        "kind": "train",
        "loss": 7.9,
        "learning_rate": 1e-4,
        "gradient_norm": 1.5,
        "tokens": 4000,
        "seconds": 5.0,
        "processor_seconds": 0.0,
        "steps_per_second": 2.0,
        "tokens_per_second": 800.0,
    }
    assert (second["steps_per_second"], second["embedding_norm"]) == (4.0, 2)
    assert validation == {"step": 30, "kind": "valid", "loss": 6.0, "perplexity": 403.4}
    monitor.close()
    monitor.close()
    assert scalar_steps(run, "train/loss") == [10, 30]
    assert scalar_steps(run, "valid/perplexity") == [30]
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == (
        "step 10/100: loss 7.900, learning rate 1.0e-04, gradient norm 1.50, 2.00 steps/s, 800 tokens/s, 00:45 left"
    )
    assert lines[2] == "step 30: validation loss 6.000, perplexity 403.400"


def test_resuming_drops_records_of_repeated_steps(tmp_path):
    run = Run(tmp_path)
    monitor = Monitor(run, total_steps=100)
    for step in (10, 20, 30, 40):
        log(monitor, step)
    monitor.log_validation(20, loss=1.0, perplexity=2.7, bleu=3.0)
    monitor.close()
    with open(run.metrics_path, "a") as file:
        file.write('{"step": 50, "ki')  # a killed process
    monitor = Monitor(run, total_steps=100, start_step=20)
    assert steps_and_kinds(run) == [(10, "train"), (20, "train"), (20, "valid")]
    log(monitor, 30, loss=0.5)
    monitor.close()
    assert steps_and_kinds(run)[-1] == (30, "train")
    assert read_metrics(run.metrics_path)[-1]["steps_per_second"] == 2.0
    assert scalar_steps(run, "train/loss") == [10, 20, 30]
    assert scalar_steps(run, "valid/bleu") == [20]


def test_killed_while_resuming(tmp_path, monkeypatch):
    """The scalars are written again before the lines are dropped, so that the next process repeats the rest."""
    run = Run(tmp_path)
    monitor = Monitor(run, total_steps=100)
    for step in (10, 20, 30):
        log(monitor, step)
    monitor.close()
    for name in ("open", None):
        with monkeypatch.context() as patch, pytest.raises(SystemExit) if name else contextlib.nullcontext():
            if name:
                patch.setattr(RecordFile, name, lambda self: sys.exit(1))
            Monitor(run, total_steps=100, start_step=20).close()
    assert steps_and_kinds(run) == [(10, "train"), (20, "train")]
    assert scalar_steps(run, "train/loss") == [10, 20]


def test_a_line_after_a_stop_is_of_all_steps_since_the_last_one(tmp_path):
    run = Run(tmp_path)
    monitor = Monitor(run, total_steps=100)
    log(monitor, 10)
    monitor.close()
    monitor = Monitor(run, total_steps=100, start_step=19)
    log(monitor, 20)
    monitor.close()
    assert [line["steps_per_second"] for line in read_metrics(run.metrics_path)] == [2.0, 2.0]


def test_not_a_number_is_null_in_json(tmp_path):
    run = Run(tmp_path)
    monitor = Monitor(run, total_steps=100)
    log(monitor, 10, loss=float("nan"), gradient_norm=float("inf"))
    monitor.close()
    assert "NaN" not in run.metrics_path.read_text() and "Infinity" not in run.metrics_path.read_text()
    (record,) = read_metrics(run.metrics_path)
    assert (record["loss"], record["gradient_norm"], record["tokens"]) == (None, None, 4000)
    log(Monitor(run, total_steps=100, start_step=10), 20)  # reads the nulls


def test_curves(tmp_path, with_curves):
    run = Run(tmp_path)
    monitor = Monitor(run, total_steps=100)
    monitor.draw_curves()
    assert not run.curves_path.exists()  # nothing to draw yet
    log(monitor, 10)
    log(monitor, 20)
    monitor.log_validation(20, loss=6.0, perplexity=403.4)
    narrow = run.curves_path.read_bytes()
    assert b"BLEU" not in narrow and b"loss per token" in narrow  # words are text
    monitor.log_validation(30, loss=5.0, perplexity=148.4, bleu=12.0)
    monitor.close()
    assert b"validation score" in run.curves_path.read_bytes() and b"BLEU" in run.curves_path.read_bytes()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["curves.svg", "metrics.jsonl", "tensorboard"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_gets_a_bar(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stderr", Terminal())
    monitor = Monitor(Run(tmp_path), total_steps=100, start_step=20)
    monitor.progress(25, 100)
    log(monitor, 30)
    monitor.log_validation(40, loss=1.0, perplexity=2.718)
    monitor.close()
    shown = sys.stderr.getvalue()
    assert "30/100, loss 7.700, lr 1.0e-04, 800 tokens/s, 00:11 left" in shown
    assert "\nstep 40: validation loss 1.000, perplexity 2.718\n" in shown.replace("\r", "\n")
    assert "step 30" not in shown


@pytest.mark.parametrize("is_terminal", [False, True])
def test_training_continues_if_the_output_is_closed(tmp_path, monkeypatch, is_terminal):
    class ClosedOutput(io.StringIO):
        def isatty(self):
            return is_terminal

        def write(self, text):
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(sys, "stderr", ClosedOutput())
    run = Run(tmp_path)
    with contextlib.closing(Monitor(run, total_steps=100)) as monitor:
        log(monitor, 10)
        monitor.log_validation(10, loss=6.0, perplexity=403.4)
    assert steps_and_kinds(run) == [(10, "train"), (10, "valid")]


def test_the_time_left_is_that_of_the_expected_steps(tmp_path, capsys):
    monitor = Monitor(Run(tmp_path), total_steps=10**6)
    log(monitor, 10, expected_steps=610)
    monitor.close()
    output = capsys.readouterr().err
    assert output.startswith("step 10 of about 610: loss ")
    assert output.endswith("2.00 steps/s, 800 tokens/s, 05:00 left\n")


def test_sums_that_a_checkpoint_keeps_do_not_change():
    interval = Interval(measure_sums={"sampled_gleu": 1.0})
    sums = interval.sums()
    numbers = np.ones(1)
    interval.add(StepMetrics(numbers, numbers, numbers, numbers, {"sampled_gleu": numbers}), 1.0)
    assert sums == [0.0, 0.0, 0.0, {"sampled_gleu": 1.0}, 0.0] and interval.sums()[3] == {"sampled_gleu": 2.0}


def test_a_configuration_that_is_being_edited_ends_nothing(tmp_path):
    run = Run(tmp_path)
    (tmp_path / "vocab").write_bytes(b"")
    run.start(presets.preset("tiny"), "/data", tmp_path / "vocab")
    with contextlib.closing(Monitor(run, total_steps=100)) as monitor:
        run.config_path.write_text('{"model": {},}', encoding="utf-8")
        monitor.log_validation(10, loss=6.0, perplexity=403.4)
    assert steps_and_kinds(run) == [(10, "valid")]
