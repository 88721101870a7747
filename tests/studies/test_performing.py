"""Signals to a study are passed to the process of the current phase."""

import os
import signal
import time

import pytest

from t2t_keras.machine.processes import ProcessDiedError, call_apart
from t2t_keras.studies.performing import _HandedOnSignals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_during_the_start_of_a_process_reaches_it(number):
    """The signal arrives after the last check for signals and before the process exists."""
    with _HandedOnSignals() as signals:
        os.kill(os.getpid(), number)
        with pytest.raises(ProcessDiedError) as died:
            call_apart(time.sleep, 600, started=signals.hand_on)
    assert died.value.exit_code == -signal.SIGTERM and signals.received == number
