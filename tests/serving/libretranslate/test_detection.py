"""Language detection: ranking, and texts without a language."""

import importlib.util
import sys
from types import SimpleNamespace

import pytest

from t2t_keras.serving.libretranslate.detection import LanguageDetector
from t2t_keras.serving.request_errors import Code, ServingError

needs_package = pytest.mark.skipif(not importlib.util.find_spec("py3langid"), reason="py3langid is missing")


@pytest.fixture(scope="module")
def detector():
    return LanguageDetector()


@needs_package
@pytest.mark.integration
@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Where is the station?", "en"),
        ("Wo ist der Bahnhof?", "de"),
        ("Onde fica a estação?", "pt-BR"),
        ("駅はどこですか。", "ja"),
        ("x" * 10_000_000, None),
    ],
)
def test_detected_languages(detector, text, language):
    (best, confidence), *others = detector.rank(text, ["de", "en", "ja", "pt-BR"])
    assert 0 <= confidence <= 100 and all(1 <= other <= confidence for _, other in others)
    assert language is None or (best == language and confidence > 50)


@needs_package
@pytest.mark.integration
def test_empty_texts_and_unknown_languages(detector):
    assert detector.rank("", ["fr", "de"])[0][1] == 0
    assert detector.rank("Hello.", ["tlh"]) == [("tlh", 0.0)]
    (single,) = detector.rank("Wo ist der Bahnhof?", ["en"])
    assert single[0] == "en" and single[1] < 50


def test_ranking_contains_only_requested_languages_with_some_confidence(monkeypatch):
    ranked = SimpleNamespace(rank=lambda text: [("de", 0.75), ("nl", 0.2), ("en", 0.04), ("fr", 0.001)])
    monkeypatch.setattr(LanguageDetector, "_load", lambda self: ranked)
    rank = LanguageDetector().rank
    assert rank("Wo?", ["fr", "en", "de"]) == [("de", 75.0), ("en", 4.0)]
    assert rank("12!", ["en", "de"]) == [("en", 0.0)]
    assert rank("Wo?", ["tlh"]) == [("tlh", 0.0)]
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    with pytest.raises(ServingError, match="py3langid: pip install") as caught:
        LanguageDetector().rank("Hello.", ["en"])
    assert caught.value.code is Code.UNIMPLEMENTED
