"""Runs jobs on Apache Beam, whose workers may be on other machines.

Files carry the jobs' arguments and results; only the jobs' numbers pass through a pipeline. So nothing large does, and
results are known as soon as they are there, also on runners that tell of nothing but the end.
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

# Beam's DirectRunner would download another runner first.
_LOCAL_RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"

_ARGUMENT, _RESULT = ".argument", ".json"
_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 60.0  # until what other machines wrote is seen here, or until a pipeline stops


class BeamWorkers:
    """Runs jobs as a pipeline of Apache Beam; all workers must see `folder` under the same path.

    `runner` is a name that Beam knows, such as "FlinkRunner", or "direct" for this machine; `options` are those of
    its `PipelineOptions` without the dashes, such as "direct_num_workers=4". Jobs with large arguments run in
    `processes` processes here. An InputError says that Beam is missing, or has no such runner, or refuses an option.
    """

    def __init__(self, folder: str | Path, runner: str, options: Sequence[str] = (), processes: int = 1) -> None:
        self._beam = _imported()
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
        """Whether there are several workers; it is taken for granted."""
        return True

    def run(
        self, function: Callable[..., Any], jobs: Iterable[tuple[int, Any]]
    ) -> Generator[tuple[int, Any], None, None]:
        """Calls a function for each job and yields (number, result) as jobs finish.

        The function must be importable where the workers are, arguments picklable, results JSON values. Close the
        iterator to stop early: jobs that have begun go on to their end. An InputError is the function's, or says that
        the pipeline failed or that results are not there.
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
            shutil.rmtree(folder, ignore_errors=True)  # jobs that have not begun find nothing to do
            if pipeline is not None:
                pipeline.stop()

    def _new_pipeline(self) -> Any:
        from apache_beam.options.pipeline_options import PipelineOptions
        from apache_beam.runners.runner import create_runner

        errors = io.StringIO()
        try:
            with contextlib.redirect_stderr(errors):  # a wrong value prints all options there are
                options = PipelineOptions(self._options)  # without a list it would read the program's arguments
                options.get_all_options()
        except SystemExit:
            line = _last_line(errors.getvalue()).rpartition(" error: ")[2]
            raise InputError(f"options of Apache Beam: {line}") from None
        return self._beam.Pipeline(runner=create_runner(self._runner), options=options)


class _Running:
    """A pipeline that runs in a thread: some runners return only at its end."""

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
        """Raises an InputError if it failed."""
        if self._error is not None:
            raise InputError(f"the pipeline of Apache Beam failed: {_last_line(str(self._error))}") from self._error

    def stop(self) -> None:
        """Cancels it if it still runs, and gives it a while to end."""
        if self._thread.is_alive() and self._result is not None:
            with contextlib.suppress(Exception):  # it may have ended just now
                self._result.cancel()
        self._thread.join(_PATIENCE_SECONDS)


def _results(folder: Path, waiting: set[int], pipeline: _Running) -> Iterator[tuple[int, Any]]:
    """Yields the results of the jobs `waiting` as their files appear."""
    ended_at: float | None = None
    while waiting:
        if ended_at is None and pipeline.ends_within(_POLL_SECONDS):
            ended_at = time.monotonic()
        there = {int(path.name.removesuffix(_RESULT)) for path in folder.glob(f"[0-9]*{_RESULT}")}
        for number in sorted(waiting & there):
            waiting.remove(number)
            answer = read_json(folder / f"{number}{_RESULT}")
            if "error" in answer:
                raise InputError(answer["error"])
            yield number, answer["result"]
        if waiting and ended_at is not None:
            pipeline.check()
            if time.monotonic() - ended_at > _PATIENCE_SECONDS:
                raise InputError(
                    f"{len(waiting)} results are missing in {folder.parent}: every worker of Apache Beam must see this "
                    "folder under this path, for example on a shared file system"
                )
            time.sleep(_POLL_SECONDS)


def _work(number: int, function: Callable[..., Any], folder: Path) -> None:
    try:
        argument = pickle.loads((folder / f"{number}{_ARGUMENT}").read_bytes())
    except FileNotFoundError:
        return  # nobody waits for it any more, or the folder is not this machine's: who waits notices
    try:
        answer = {"result": function(number, argument)}
    except InputError as error:  # trying again, as runners do, would not help
        answer = {"error": str(error)}
    if folder.exists():
        write_json(folder / f"{number}{_RESULT}", answer)


def _imported() -> Any:
    """The package; it warns of others that it does without, which is no user's concern."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        return optional_module("apache_beam", MISSING)
    finally:
        logging.disable(before)


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")
