"""What this machine's processor is called."""

from t2t_keras.machine.processor import processor


def test_the_processor_is_named():
    cores, _, name = processor().partition(" x ")
    assert int(cores) > 0 and name
