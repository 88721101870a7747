import sys

import pytest

from t2t_keras.errors import InputError
from t2t_keras.machine.beam_workers import BeamWorkers


def test_without_the_package_one_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(InputError, match=r"^the package apache-beam is missing: pip install '\.\[beam\]'$"):
        BeamWorkers(tmp_path, "direct")
