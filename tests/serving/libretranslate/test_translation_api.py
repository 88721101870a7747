"""The LibreTranslate API over real sockets, with two translation models and one model of a different task."""

import contextlib
import importlib.util
import json
import urllib.error

import httpx
import pytest
import tensorflow as tf

from t2t_keras.serving.http.marked import MarkupField
from t2t_keras.serving.options import Limits, ServingOptions
from t2t_keras.serving.server import Server
from tests.serving import page_model
from tests.serving.rest_calls import metric

pytestmark = pytest.mark.integration
needs_detection = pytest.mark.skipif(not importlib.util.find_spec("py3langid"), reason="py3langid is missing")
TEXT = [tf.TensorSpec([None], tf.string, "text")]
LIMITS = Limits(max_body_bytes=20_000, max_sentences=8, max_sentence_bytes=300)


class French(tf.Module):
    """Encloses each text in angle brackets, and runs endlessly for texts with "ENDLESS"."""

    @tf.function(input_signature=TEXT)
    def translate(self, text):
        endless = tf.reduce_any(tf.strings.regex_full_match(text, ".*ENDLESS.*"))
        rounds = tf.while_loop(lambda n: endless, lambda n: [tf.maximum(n, 1)], [tf.size(text)])[0]
        with tf.control_dependencies([rounds]):
            return {"translation": tf.strings.join(["<", text, ">"]), "score": tf.zeros(tf.shape(text))}


class Documents:
    """Splits documents at vertical bars, their only markup."""

    def __init__(self, markup, documents, attributes):
        assert markup == "html" and not attributes
        self._parts = [document.split("|") for document in documents]
        self.texts = [part for parts in self._parts for part in parts]

    def filled(self, outputs):
        texts = iter([some["translation"][0].decode() for some in outputs])
        return ["|".join(next(texts) for _ in parts) for parts in self._parts]


@pytest.fixture(scope="module")
def config_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    page_model.save(folder / "german")
    page_model.save(folder / "summary", "nbest", "align", "attention", "alternatives", task="summarisation")
    french = French()
    tf.saved_model.save(french, str(folder / "french" / "1"), signatures={"serving_default": french.translate})
    config = folder / "french" / "1" / "assets.extra" / "config.json"
    config.parent.mkdir()
    config.write_text(json.dumps({"data": {"source_language": "de", "target_language": "fr", "task": "translation"}}))
    file = folder / "models.config"
    models = [f'config {{ name: "{name}" base_path: "{folder}/{name}" }}' for name in ("summary", "german", "french")]
    file.write_text(f"model_config_list {{ {' '.join(models)} }}")
    return file


@contextlib.contextmanager
def serve(config_file, fields=(), **options):
    options = ServingOptions(
        model_config_file=str(config_file), rest_port=0, grpc_port=0, limits=LIMITS, grace_seconds=5, **options
    )
    server = Server(options, fields=fields)
    server.start()
    try:
        with httpx.Client(base_url=f"http://{server.rest_address}", timeout=300) as client:
            yield client
    finally:
        assert server.stop()


@pytest.fixture(scope="module")
def client(config_file):
    with serve(config_file, [MarkupField(Documents)]) as client:
        yield client


def translate(client, **fields):
    return client.post("/translate", json={"source": "en", "target": "de", **fields})


def test_texts_and_lists(client):
    assert translate(client, q="a dog").json() == {"translatedText": "A DOG"}
    assert translate(client, q=["a", "b", ""]).json() == {"translatedText": ["A", "B", ""]}
    form = {"q": "a\nb", "source": "en", "target": "de", "format": "text", "api_key": "", "alternatives": "0"}
    for request in ({"data": form}, {"files": {name: (None, text) for name, text in form.items()}}, {"params": form}):
        response = client.post("/translate", **request)
        assert (response.status_code, response.json()) == (200, {"translatedText": "A\nB"})
    assert metric(client, 't2t_serving_requests_total{interface="rest",outcome="OK",signature="serving_default"}')


def test_alternatives_are_the_hypotheses_of_the_search(client):
    assert translate(client, q="a", alternatives=3).json() == {"translatedText": "A", "alternatives": ["A TOO"]}
    assert translate(client, q=["a", "b"], alternatives="1").json()["alternatives"] == [["A TOO"], ["B TOO"]]
    french = translate(client, q="a", target="fr", alternatives=1).json()
    assert french == {"translatedText": "<A>", "alternatives": []}  # the model does not return n-best lists


def test_documents(client):
    assert translate(client, q="one|two", format="html").json() == {"translatedText": "ONE|TWO"}
    response = translate(client, q="one", format="html", target="fr")
    assert (response.status_code, response.json()) == (501, {"error": "version 1 does not translate markup"})
    long = "|".join(["word"] * 8)
    assert translate(client, q=[long], format="html").json() == {"translatedText": [long.upper()]}


def test_translation_through_a_third_language(client):
    assert translate(client, q=["a", "b"], target="fr").json() == {"translatedText": ["<A>", "<B>"]}
    assert translate(client, q="a", source="de", target="fr_CA").json() == {"translatedText": "<a>"}
    assert translate(client, q="a", source="fr", target="fr").json() == {"translatedText": "a"}


UNTAGGED = (
    "'text': each text must begin with the tag of its target language, <2it> or <2en> or <2es>; for example "
    "'<2it> Good morning.'"
)


def test_multilingual_models_receive_the_tag_of_the_target_language(config_file, tmp_path):
    french = French()
    tf.saved_model.save(french, str(tmp_path / "many" / "1"), signatures={"serving_default": french.translate})
    config = tmp_path / "many" / "1" / "assets.extra" / "config.json"
    config.parent.mkdir()
    config.write_text(json.dumps({"data": {"source_language": "en", "directions": ["en-it", "it-en", "en-es"]}}))
    file = tmp_path / "models.config"
    file.write_text(f'model_config_list {{ config {{ name: "many" base_path: "{tmp_path}/many" }} }}')
    with serve(file, [MarkupField(Documents)]) as client:
        assert [each["code"] for each in client.get("/languages").json()] == ["en", "it", "es"]
        assert translate(client, q=["a", " "], target="it").json() == {"translatedText": ["<<2it> a>", "< >"]}
        translation = translate(client, q="a", source="it", target="es").json()
        assert translation == {"translatedText": "<<2es> <<2en> a>>"}
        assert translate(client, q="a", target="it", format="html").status_code == 501  # the model returns no alignment
        assert client.get("/server.json").json()["directions"] == [["en", "it"], ["it", "en"], ["en", "es"]]
        response = client.post("/v1/models/many:predict", json={"instances": ["<2it> a", " ", "<2es> a"]})
        translations = [prediction["translation"] for prediction in response.json()["predictions"]]
        assert translations == ["<<2it> a>", "< >", "<<2es> a>"]
        for text in ("a", "<2de> a", "a <2it>"):
            response = client.post("/v1/models/many:predict", json={"instances": ["<2it> a", text]})
            assert (response.status_code, response.json()["error"]) == (400, UNTAGGED)


def test_documents_have_the_tag_before_each_text(tmp_path):
    page_model.save(tmp_path / "many")
    config = tmp_path / "many" / "1" / "assets.extra" / "config.json"
    config.write_text(json.dumps({"data": {"source_language": "en", "directions": ["en-it", "en-es"]}}))
    file = tmp_path / "models.config"
    file.write_text(f'model_config_list {{ config {{ name: "many" base_path: "{tmp_path}/many" }} }}')
    with serve(file, [MarkupField(Documents)]) as client:
        response = translate(client, q="one|two", target="es", format="html")
        assert response.json() == {"translatedText": "<2ES> ONE|<2ES> TWO"}  # the model returns its whole input
        content = {"markup": "html", "tag": "<2fr>", "inputs": ["one"]}
        response = client.post("/v1/models/many:predict", json=content)
        assert response.status_code == 400
        assert response.json()["error"].startswith("'tag' must be one of <2it>, <2es>; got")


def test_languages_health_and_settings(client):
    assert client.get("/languages").json() == [
        {"code": "en", "name": "English", "targets": ["de", "en", "fr"]},
        {"code": "de", "name": "German", "targets": ["de", "fr"]},
        {"code": "fr", "name": "French", "targets": ["fr"]},
    ]
    assert client.get("/health").json() == {"status": "ok"}
    settings = client.get("/frontend/settings").json()
    assert settings["charLimit"] == 300 and not settings["keyRequired"]
    assert settings["language"]["source"]["code"] == "auto"


@needs_detection
def test_detection(client):
    (best, *_) = client.post("/detect", data={"q": "Wo ist der Bahnhof?"}).json()
    assert best["language"] == "de" and 50 < best["confidence"] <= 100
    assert metric(client, 't2t_serving_requests_total{interface="rest",outcome="OK",signature="detect"}')
    response = translate(client, q="Wo ist der Bahnhof?", source="auto", target="fr").json()
    assert response == {"translatedText": "<Wo ist der Bahnhof?>", "detectedLanguage": best}
    response = translate(client, q=["Where is it?", "Good morning."], source="auto").json()
    assert response["translatedText"] == ["WHERE IS IT?", "GOOD MORNING."]
    assert [each["language"] for each in response["detectedLanguage"]] == ["en", "en"]
    marked = "<p class='the of and'>Wo ist der Bahnhof?</p>"
    response = translate(client, q=marked, source="auto", format="html").json()
    assert (response["translatedText"], response["detectedLanguage"]["language"]) == (marked, "de")


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"q": ""}, 400, "Invalid request: missing q parameter"),
        ({"q": "a", "source": ""}, 400, "Invalid request: missing source parameter"),
        ({"q": "a", "target": None}, 400, "Invalid request: missing target parameter"),
        ({"q": "a", "target": ["de"]}, 400, "target must be a string"),
        ({"q": ["a", 1]}, 400, "q must be a string or a list of strings"),
        ({"q": {"a": 1}}, 400, "q must be a string or a list of strings"),
        ({"q": "\ud800"}, 400, "q is not valid Unicode"),
        ({"q": "a", "source": "\ud800"}, 400, "is not supported"),
        ({"q": "a", "format": "xml"}, 400, "xml format is not supported"),
        ({"q": "a", "format": ["html"]}, 400, "format must be a string"),
        ({"q": "a", "alternatives": "many"}, 400, "alternatives parameter is not a number"),
        ({"q": "a", "alternatives": float("inf")}, 400, "alternatives parameter is not a number"),
        ({"q": "a", "source": "xx"}, 400, "xx is not supported"),
        ({"q": "a", "target": "x" * 5000}, 400, "xxx..."),
        ({"q": "a", "source": "fr"}, 400, "German (de) is not available as a target language from French (fr)"),
        ({"q": "bad"}, 400, "no such word"),
        ({"q": ["a"] * 9}, 400, "max_sentences=8"),
        ({"q": "a" * 301}, 400, "max_sentence_bytes=300"),
        ({"q": "a" * 30_000}, 413, "max_body_bytes=20000"),
        ({"q": "a|" * 20, "format": "html"}, 400, "max_sentences=8"),
    ],
)
def test_errors(client, fields, status, words):
    body = json.dumps({"source": "en", "target": "de", **fields}).encode()
    response = client.post("/translate", content=body, headers={"Content-Type": "application/json"})
    assert (response.status_code, list(response.json())) == (status, ["error"])
    assert words in response.json()["error"]


def test_api_keys(config_file, tmp_path):
    (tmp_path / "keys").write_text("secret\n")
    body = {"q": "a", "source": "en", "target": "de"}
    with serve(config_file, api_key_file=str(tmp_path / "keys")) as client:
        for request in ({"json": {**body, "api_key": "secret"}}, {"data": {**body, "api_key": "secret"}}):
            assert client.post("/translate", **request).json() == {"translatedText": "A"}
        bearer = {"Authorization": "Bearer secret"}
        assert client.post("/translate", json=body, headers=bearer).json() == {"translatedText": "A"}
        for key, status, words in (
            ("wrong", 403, "Invalid API key"),
            ("", 400, "a key is required"),
            (7, 403, "Invalid"),
        ):
            for path in ("/translate", "/detect"):
                response = client.post(path, json={**body, "api_key": key})
                assert response.status_code == status and words in response.json()["error"]
        assert len(client.get("/languages").json()) == 3 and client.get("/health").status_code == 200
        assert client.get("/frontend/settings").json()["keyRequired"]
        assert client.post("/v1/models/german:predict", json={"instances": ["a"]}).status_code == 401


@needs_detection
def test_the_client_libretranslatepy(config_file, tmp_path):
    libretranslatepy = pytest.importorskip("libretranslatepy")
    (tmp_path / "keys").write_text("secret\n")
    with serve(config_file, api_key_file=str(tmp_path / "keys")) as client:
        api = libretranslatepy.LibreTranslateAPI(str(client.base_url), "secret")
        assert api.translate("a dog & a cat: 100 %\nä", "en", "de") == "A DOG & A CAT: 100 %\nÄ"
        assert api.translate("a", "en", "fr") == "<A>"
        assert api.detect("Wo ist der Bahnhof?")[0]["language"] == "de"
        assert [each["code"] for each in api.languages()] == ["en", "de", "fr"]
        stranger = libretranslatepy.LibreTranslateAPI(str(client.base_url), "wrong")
        with pytest.raises(urllib.error.HTTPError, match="403"):
            stranger.translate("a", "en", "de")
