"""Signals to a study reach the process that runs a phase."""

import os
import signal
import time

import pytest

from t2t_keras.machine.processes import ProcessDiedError, call_in_process
from t2t_keras.studies.performing import _ForwardedSignals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_reaches_a_process_that_starts_at_that_moment(number):
    """It came after the last look at what was received, and before there was a process to hand it on to."""
    with _ForwardedSignals() as signals:
        os.kill(os.getpid(), number)
        with pytest.raises(ProcessDiedError) as died:
            call_in_process(time.sleep, 600, started=signals.forward)
    assert died.value.exit_code == -signal.SIGTERM and signals.received == number
