"""Runs jobs on Apache Beam, whose workers may be on other machines.

Arguments and results are passed in files; only the numbers of the jobs go through the pipeline. The pipeline therefore
transports nothing large, and each result is available as soon as its job ends, even on runners that report only the end
of a pipeline.
"""

import contextlib
import io
import logging
import pickle
import shutil
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from t2t_keras.errors import InputError, optional_module
from t2t_keras.machine.files import read_json, temporary_name, write_json
from t2t_keras.machine.processes import Processes

MISSING = "the package apache-beam is missing: pip install '.[beam]'"

# In place of Beam's DirectRunner, which would first download a different runner.
_LOCAL_RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"

_ARGUMENT, _RESULT = ".argument", ".json"
_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 60.0  # to wait for files of other machines to become visible, or for a pipeline to stop


class BeamWorkers:
    """Runs jobs as an Apache Beam pipeline.

    Args:
        folder: directory for the files of the jobs, which all workers must see under the same path.
        runner: a runner that Beam knows, such as "FlinkRunner", or "direct" for this machine.
        options: Beam's `PipelineOptions` without the leading dashes, such as "direct_num_workers=4".
        processes: number of processes of this machine for jobs with large arguments.

    Attributes:
        here: the processes of this machine.

    Raises:
        InputError: Beam is missing, does not know the runner, or rejects an option.
    """

    def __init__(self, folder: str | Path, runner: str, options: Sequence[str] = (), processes: int = 1) -> None:
        self._beam = _import_beam()
        self._folder, self.here = Path(folder).absolute(), Processes(processes)
        self._runner = _LOCAL_RUNNER if runner.lower() in ("direct", "directrunner") else runner
        self._options = [f"--{option}" for option in options]
        try:
            self._new_pipeline()
        except InputError:
            raise
        except (ValueError, ImportError, AttributeError) as error:
            raise InputError(f"runner {runner!r} of Apache Beam: {_last_line(str(error))}") from error

    @property
    def is_parallel(self) -> bool:
        """True, because several workers are assumed."""
        return True

    def run(
        self, function: Callable[..., Any], jobs: Iterable[tuple[int, Any]]
    ) -> Generator[tuple[int, Any], None, None]:
        """Calls a function for each job and yields (number, result) as jobs finish.

        Close the iterator to stop early; jobs that have started continue to their end.

        Args:
            function: called with a job's number and argument; must be importable on the workers.
            jobs: (number, argument) of each job; arguments must be picklable, and results JSON values.

        Raises:
            InputError: the function raised one, the pipeline failed, or results are missing.
        """
        folder = self._folder / temporary_name("jobs")
        folder.mkdir()
        pipeline: _Running | None = None
        try:
            waiting = set()
            for number, argument in jobs:
                (folder / f"{number}{_ARGUMENT}").write_bytes(pickle.dumps(argument))
                waiting.add(number)
            if waiting:
                pipeline = _Running(self._beam, self._new_pipeline(), sorted(waiting), (function, folder))
                yield from _results(folder, waiting, pipeline)
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # jobs that start later find no argument and return
            if pipeline is not None:
                pipeline.stop()

    def _new_pipeline(self) -> Any:
        from apache_beam.options.pipeline_options import PipelineOptions
        from apache_beam.runners.runner import create_runner

        errors = io.StringIO()
        try:
            with contextlib.redirect_stderr(errors):  # for an invalid value, argparse prints the usage of all options
                options = PipelineOptions(self._options)  # without an argument it would parse sys.argv
                options.get_all_options()
        except SystemExit:
            line = _last_line(errors.getvalue()).rpartition(" error: ")[2]
            raise InputError(f"options of Apache Beam: {line}") from None
        return self._beam.Pipeline(runner=create_runner(self._runner), options=options)


class _Running:
    """A pipeline that runs in a thread, because some runners return only when it ends."""

    def __init__(self, beam: Any, pipeline: Any, numbers: list[int], work: tuple[Any, ...]) -> None:
        self._result: Any = None
        self._error: Exception | None = None
        _ = pipeline | beam.Create(numbers) | beam.Reshuffle() | beam.Map(_work, *work)
        self._thread = threading.Thread(target=self._run, args=(pipeline,), daemon=True)
        self._thread.start()

    def _run(self, pipeline: Any) -> None:
        try:
            self._result = pipeline.run()
            self._result.wait_until_finish()
        except Exception as error:
            self._error = error

    def ends_within(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def check(self) -> None:
        """Raises an InputError if the pipeline failed."""
        if self._error is not None:
            raise InputError(f"the pipeline of Apache Beam failed: {_last_line(str(self._error))}") from self._error

    def stop(self) -> None:
        """Cancels the pipeline if it still runs, and waits up to `_PATIENCE_SECONDS` for its end."""
        if self._thread.is_alive() and self._result is not None:
            with contextlib.suppress(Exception):  # the pipeline may have ended in the meantime
                self._result.cancel()
        self._thread.join(_PATIENCE_SECONDS)


def _results(folder: Path, waiting: set[int], pipeline: _Running) -> Iterator[tuple[int, Any]]:
    """Yields the results of the jobs in `waiting` as their files appear."""
    ended_at: float | None = None
    while waiting:
        if ended_at is None and pipeline.ends_within(_POLL_SECONDS):
            ended_at = time.monotonic()
        numbers = {int(path.name.removesuffix(_RESULT)) for path in folder.glob(f"[0-9]*{_RESULT}")}
        for number in sorted(waiting & numbers):
            waiting.remove(number)
            answer = read_json(folder / f"{number}{_RESULT}")
            if "error" in answer:
                raise InputError(answer["error"])
            yield number, answer["result"]
        if waiting and ended_at is not None:
            pipeline.check()
            if time.monotonic() - ended_at > _PATIENCE_SECONDS:
                raise InputError(
                    f"{len(waiting)} results are missing in {folder.parent}: all workers of Apache Beam must see this "
                    "folder under this path, for example on a shared file system"
                )
            time.sleep(_POLL_SECONDS)


def _work(number: int, function: Callable[..., Any], folder: Path) -> None:
    try:
        argument = pickle.loads((folder / f"{number}{_ARGUMENT}").read_bytes())
    except FileNotFoundError:
        return  # the caller has stopped, or does not share this folder, which `_results` reports
    try:
        answer = {"result": function(number, argument)}
    except InputError as error:  # not raised, because runners would retry the job
        answer = {"error": str(error)}
    if folder.exists():
        write_json(folder / f"{number}{_RESULT}", answer)


def _import_beam() -> Any:
    """Imports Apache Beam without its warnings about missing optional packages."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        return optional_module("apache_beam", MISSING)
    finally:
        logging.disable(level)


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")
