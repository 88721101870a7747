"""Corpora of OPUS by name, from a local server."""

import functools
import hashlib
import http.server
import io
import threading
import zipfile

import pytest

from t2t_keras.config import DataConfig
from t2t_keras.data.prepare import PreparedData, prepare
from t2t_keras.data.sources import corpora, opus
from t2t_keras.errors import InputError

NAME = "Tatoeba/v2023-04-12"


def archive(count: int = 300, word: str = "dog") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as writer:
        writer.writestr("README", "about it")
        writer.writestr("Tatoeba.de-en.en", "".join(f"Sentence {n} has a {word}.\n" for n in range(count)))
        writer.writestr("Tatoeba.de-en.de", "".join(f"Satz {n} hat einen Hund.\n" for n in range(count)))
    return file.getvalue()


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture
def published(tmp_path, monkeypatch):
    """Serves OPUS's directories on this machine and returns the path of the archive."""
    folder = tmp_path / "published"
    path = folder / "OPUS-Tatoeba" / "v2023-04-12" / "moses" / "de-en.txt.zip"
    path.parent.mkdir(parents=True)
    path.write_bytes(archive())
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setattr(opus, "ADDRESS", f"http://127.0.0.1:{server.server_port}")
    yield path
    server.shutdown()
    thread.join()
    server.server_close()


def opus_corpus(name: str, source: str, target: str, folder) -> corpora.Corpus:
    config = DataConfig(corpus=f"opus:{name}", source_language=source, target_language=target)
    return corpora.of_config(config, folder)


def test_a_corpus_is_downloaded_once_and_read_in_either_direction(tmp_path, published, monkeypatch):
    corpus = opus_corpus(NAME, "de", "en", tmp_path / "kept")
    pairs = list(corpus.splits["train"]())
    assert pairs[7] == ("Satz 7 hat einen Hund.", "Sentence 7 has a dog.") and len(pairs) == 300
    assert set(corpus.splits) == {"train"}
    monkeypatch.setattr(opus, "ADDRESS", "http://127.0.0.1:9/nothing")
    again = opus_corpus(NAME, "en", "de", tmp_path / "kept")
    assert list(again.splits["train"]()) == [pair[::-1] for pair in pairs]
    path = tmp_path / "kept/opus/Tatoeba/v2023-04-12/de-en.txt.zip"
    assert corpus.files == again.files == {"train_source": path}
    path.write_bytes(archive(word="cat"))
    with pytest.raises(
        InputError, match=r"de-en\.txt\.zip: SHA-256 is .*, expected .*; delete the file to download it"
    ):
        opus_corpus(NAME, "de", "en", tmp_path / "kept")


def test_prepared_data_rejects_a_different_archive(tmp_path, published):
    config = DataConfig(corpus=f"opus:{NAME}", vocab_type="char", vocab_size=300)

    def prepare_from(downloads: str) -> PreparedData:
        corpus = corpora.of_config(config, tmp_path / downloads)
        return prepare(corpus, config, tmp_path / "data", lambda _: None)

    data = prepare_from("first")
    assert data.identity["train_source"] == hashlib.sha256(published.read_bytes()).hexdigest()
    assert prepare_from("second").counts == data.counts
    published.write_bytes(archive(word="cat"))
    with pytest.raises(InputError, match=r"already prepared with different settings \(train_source: .*\.\.\. -> "):
        prepare_from("third")


@pytest.mark.parametrize("name", ["Tatoeba", "Tatoeba/", "../x/y", "a/..", "a/b/c", ""])
def test_a_name_without_a_version_is_rejected(tmp_path, name):
    with pytest.raises(
        InputError, match=rf"corpus=opus:{name}: expected a corpus and its version, as in opus:Tatoeba/v"
    ):
        opus_corpus(name, "en", "de", tmp_path)


def test_an_unpublished_language_pair_is_reported_with_its_address(tmp_path, published):
    with pytest.raises(InputError, match=r"/moses/cs-en\.txt\.zip: cannot be downloaded \(HTTP Error 404"):
        opus_corpus(NAME, "en", "cs", tmp_path)
    with pytest.raises(InputError, match="source_language and target_language are both en"):
        opus_corpus(NAME, "en", "en", tmp_path)
