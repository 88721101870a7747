"""What a program says when a translation takes long."""

import dataclasses

import pytest

from launch.slow_notice import SlowNotice
from t2t_keras.config import DecodeConfig
from t2t_keras.inference.translator import Translator
from tests.inference import tiny

NOTE = "note: --engine=ctranslate2 takes less time (pip install '.[fast]')\n"


def said(capsys, seconds: list[float], engine: str = "tensorflow", **changes) -> str:
    """What stands on standard error after a batch at each of these times."""
    config = dataclasses.replace(DecodeConfig(), **changes)
    translator = Translator(tiny.tokenizer(), tiny.transformer(), config)
    times = iter([0.0, *seconds])
    notice = SlowNotice(translator, engine, lambda: next(times))
    done = []
    for number, _ in enumerate(seconds):
        notice.before(lambda *counts: done.append(counts))(number, 9)
    assert done == [(number, 9) for number in range(len(seconds))]
    return capsys.readouterr().err


def test_a_faster_engine_is_named_once_and_after_a_minute(capsys):
    assert said(capsys, [1.0, 59.0]) == ""
    assert said(capsys, [1.0, 61.0, 62.0, 200.0]) == NOTE


@pytest.mark.parametrize(
    "case", [{"engine": "ctranslate2"}, {"coverage_penalty": 0.2}], ids=["the_faster", "not_for_the_faster"]
)
def test_nothing_is_said_where_it_would_not_help(capsys, case):
    assert said(capsys, [61.0], **case) == ""
