"""Signals are recorded, and a second one takes effect at once."""

import os
import signal
import threading

import pytest

from t2t_keras.training.stop_signals import SIGNALS, StopSignals


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_recorded_and_confirmed_as_long_as_the_context_lasts(number, capfd):
    before = {each: signal.getsignal(each) for each in SIGNALS}
    signals = StopSignals()
    with signals:
        assert signals.received == 0
        os.kill(os.getpid(), number)
        assert signals.received == number
    again = "; press Ctrl-C again to stop at once" if number == signal.SIGINT else ""
    assert (
        capfd.readouterr().err
        == f"{signal.Signals(number).name}: ending the training after its progress is saved{again}\n"
    )
    with signals:
        assert signals.received == 0, "the earlier handler is not restored"
    assert {each: signal.getsignal(each) for each in SIGNALS} == before


def test_a_hangup_that_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            assert signals.received == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_second_interrupt_takes_effect_at_once():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), StopSignals():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == before


def test_signals_are_unchanged_outside_the_main_thread():
    before, inside = {each: signal.getsignal(each) for each in SIGNALS}, []

    def enter() -> None:
        with StopSignals() as signals:
            inside.append((signals.received, {each: signal.getsignal(each) for each in SIGNALS}))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert inside == [(0, before)]
