"""Opens closed standard streams on /dev/null, before another file receives their descriptors."""

import os
import sys

while (_number := os.open(os.devnull, os.O_RDWR)) < 3:
    _stream = open(_number, "w" if _number else "r", encoding="utf-8")  # noqa: SIM115  (as long as the program runs)
    setattr(sys, ("stdin", "stdout", "stderr")[_number], _stream)
os.close(_number)
