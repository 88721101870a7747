"""Signals to a study are passed to the process of the current phase."""

import os
import signal
import time

import pytest

from t2t_keras.machine.processes import ProcessDiedError, call_in_process
from t2t_keras.studies.performing import _ForwardedSignals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_during_the_start_of_a_process_reaches_it(number):
    """The signal arrives after the last check for signals and before the process exists."""
    with _ForwardedSignals() as signals:
        os.kill(os.getpid(), number)
        with pytest.raises(ProcessDiedError) as died:
            call_in_process(time.sleep, 600, started=signals.forward)
    assert died.value.exit_code == -signal.SIGTERM and signals.received == number
