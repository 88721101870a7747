"""What all tests share: quiet logs, set before anything imports TensorFlow, and a Ctrl-C that is heard."""

import os
import signal

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# A shell's background job ignores it, and so would every program that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
