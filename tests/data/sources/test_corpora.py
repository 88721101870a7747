import bz2
import contextlib
import functools
import gzip
import hashlib
import http.server
import lzma
import os
import socket
import struct
import threading
import zipfile

import pytest

from t2t_keras.config import DataConfig
from t2t_keras.data.cleaning import comparison_key
from t2t_keras.data.sources import corpora, downloads, tatoeba
from t2t_keras.data.sources.corpora_files import read_lines, read_pairs
from t2t_keras.errors import InputError

SOURCE = ["A first line.", "", "Größe ½\u2028still line three", "four"]
TARGET = ["Eine erste Zeile.", "zwei", "drei", "vier"]


def write_lines(path, lines, opener=open):
    path.parent.mkdir(parents=True, exist_ok=True)
    with opener(path, "wb") as file:
        file.write("".join(f"{line}\n" for line in lines).encode())
    return path


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture
def serve():
    """Starts servers on this machine; calling it with a handler returns the address."""
    with contextlib.ExitStack() as servers:

        def serve(handler):
            server = servers.enter_context(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler))
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            servers.callback(thread.join)
            servers.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_port}"

        yield serve


@pytest.fixture
def published(tmp_path, serve):
    """A directory and the address that serves it."""
    folder = tmp_path / "published"
    folder.mkdir()
    return folder, serve(functools.partial(QuietHandler, directory=str(folder)))


@pytest.mark.parametrize(("suffix", "opener"), [("", open), (".gz", gzip.open), (".bz2", bz2.open), (".xz", lzma.open)])
def test_lines_of_plain_and_compressed_files(tmp_path, suffix, opener):
    path = write_lines(tmp_path / f"text{suffix}", SOURCE, opener)
    assert list(read_lines(path)) == SOURCE


def test_line_ends_of_windows_a_byte_order_mark_and_a_missing_last_line_end(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo \rstill two\r\n\r\nfour")
    assert list(read_lines(path)) == ["one", "two \rstill two", "", "four"]


def test_invalid_utf8_names_file_and_line(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"fine\nalso fine\nbro\xffken\n")
    with pytest.raises(InputError, match=rf"{path}, line 3: not valid UTF-8 \(byte 4"):
        list(read_lines(path))


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_broken_compressed_files_are_named(tmp_path, suffix):
    openers = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    path = write_lines(tmp_path / f"text{suffix}", [f"line {n}" for n in range(1000)], openers[suffix])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=rf"text\{suffix}"):
        list(read_lines(path))
    path.write_bytes(b"not compressed at all")
    with pytest.raises(InputError, match=rf"text\{suffix}"):
        list(read_lines(path))


def test_a_missing_or_unreadable_file_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"missing: cannot be read: No such file"):
        list(read_lines(tmp_path / "missing"))
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        list(read_lines(tmp_path))
    with pytest.raises(InputError, match="missing: cannot be read"):
        corpora.files({"train": (tmp_path / "missing", tmp_path / "missing")})


def test_empty_files_and_pipes_are_errors(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    for name, message in (("pipe", "a folder, pipe or device; text is read several times"), ("empty", "is empty")):
        with pytest.raises(InputError, match=rf"{name}: .*{message}"):
            corpora.files({"train": (tmp_path / name, tmp_path / name)})


@pytest.mark.parametrize("longer", [0, 1])
def test_unequal_line_counts_are_given(tmp_path, longer):
    lines = [["a"] * 3, ["b"] * 3]
    lines[longer] += ["c"] * 4
    paths = [write_lines(tmp_path / name, side) for name, side in zip("st", lines, strict=True)]
    with pytest.raises(InputError, match=rf"{paths[0]} has {len(lines[0])}, {paths[1]} has {len(lines[1])}"):
        list(read_pairs(*paths))


def test_tab_separated_pairs_with_further_columns(tmp_path):
    path = write_lines(tmp_path / "pairs.tsv.gz", ["one\teins", "two\tzwei\tCC-BY"], gzip.open)
    assert list(corpora.files({"train": (path, None)}).splits["train"]()) == [("one", "eins"), ("two", "zwei")]
    path = write_lines(tmp_path / "broken.tsv", ["one\teins", "two zwei"])
    with pytest.raises(InputError, match=r"broken.tsv, line 2: expected source and target separated by a tab"):
        list(corpora.files({"train": (path, None)}).splits["train"]())


@pytest.mark.parametrize(
    ("header", "row", "column"), [("", "{}\tone\teins", 1), ("id\ten", "{}\tone", 1), ("", "a\t{}", 2)]
)
def test_a_column_of_numbers_is_rejected(tmp_path, header, row, column):
    rows = [header] * bool(header) + [row.format(number) for number in range(700, 720)]
    path = write_lines(tmp_path / "pairs.tsv", rows)
    with pytest.raises(
        InputError, match=rf"pairs.tsv: column {column} has numbers, such as 719 in line {len(rows)}; exp"
    ):
        list(corpora.files({"train": (path, None)}).splits["train"]())
    path = write_lines(tmp_path / "sorted.tsv", [f"{number}\t{number}" for number in range(30)] + ["one\teins"])
    assert len(list(corpora.files({"train": (path, None)}).splits["train"]())) == 31


def test_a_corpus_of_files_reads_them_repeatedly(tmp_path):
    source, target = write_lines(tmp_path / "a.en", SOURCE), write_lines(tmp_path / "a.de", TARGET)
    tsv = write_lines(tmp_path / "valid.tsv", ["x\ty"])
    corpus = corpora.files({"train": (source, target), "valid": (tsv, None)})
    for _ in range(2):
        assert list(corpus.splits["train"]()) == list(zip(SOURCE, TARGET, strict=True))
    assert list(corpus.splits["valid"]()) == [("x", "y")]
    assert corpus.files == {"train_source": source, "train_target": target, "valid_source": tsv}


@pytest.fixture
def multi30k_files(monkeypatch):
    """Writes small files in Multi30k's layout and makes their checksums the expected ones."""

    def write(folder):
        sums = {}
        for stem in ("train", "val", "test_2016_flickr"):
            for language, word in (("en", "dog"), ("de", "Hund")):
                path = write_lines(folder / f"{stem}.{language}.gz", [f"{stem} {word}"], gzip.open)
                sums[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
        monkeypatch.setattr(corpora, "MULTI30K_SHA256", sums)

    return write


def test_multi30k_is_downloaded_once_and_verified(tmp_path, published, multi30k_files, monkeypatch):
    folder, address = published
    multi30k_files(folder)
    monkeypatch.setattr(corpora, "_MULTI30K_ADDRESS", address)
    corpus = corpora.multi30k("de", "en", tmp_path / "kept")
    assert [list(corpus.splits[split]()) for split in corpora.SPLITS] == [
        [(f"{stem} Hund", f"{stem} dog")] for stem in ("train", "val", "test_2016_flickr")
    ]
    assert len(list((tmp_path / "kept/multi30k").iterdir())) == 6
    monkeypatch.setattr(corpora, "_MULTI30K_ADDRESS", "http://127.0.0.1:9/nothing")
    for download_dir in (tmp_path / "kept", tmp_path / "kept/multi30k"):
        assert corpora.multi30k("de", "en", download_dir).files == corpus.files
    (tmp_path / "kept/multi30k/val.en.gz").write_bytes(b"something else")
    with pytest.raises(InputError, match=r"val.en.gz: SHA-256 is .*, expected .*; delete the file"):
        corpora.multi30k("de", "en", tmp_path / "kept")


def test_a_failed_download_is_named_and_leaves_no_file(tmp_path, published):
    _, address = published
    with pytest.raises(InputError, match=rf"{address}/no.gz: cannot be downloaded \(HTTP Error 404.*put the file at"):
        downloads.fetch(f"{address}/no.gz", tmp_path / "kept/no.gz")
    assert list((tmp_path / "kept").iterdir()) == []


HEAD_RECEIVED = threading.Event()


class BrokenHandler(QuietHandler):
    """Sends half of the announced bytes or none, and then closes or resets the connection."""

    def do_GET(self):
        failure = self.path.removeprefix("/")
        if "nothing" not in failure:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"x" * 500)
            self.wfile.flush()
        if "reset" in failure:
            assert "nothing" in failure or HEAD_RECEIVED.wait(300)  # discards unread bytes
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        ("close", r"connection broke after 500 of 1000 bytes"),
        ("reset", r"connection broke after \d+ bytes: Connection reset by peer"),
        ("reset_after_nothing", r"Connection reset by peer"),
        ("close_after_nothing", r"Remote end closed connection without response"),
    ],
)
def test_a_broken_connection_is_reported_with_its_address_and_leaves_no_file(
    tmp_path, serve, monkeypatch, failure, message
):
    address, answer = serve(BrokenHandler), downloads._response

    def answer_and_signal(url):
        head = answer(url)
        HEAD_RECEIVED.set()
        return head

    HEAD_RECEIVED.clear()
    monkeypatch.setattr(downloads, "_response", answer_and_signal)
    with pytest.raises(
        InputError, match=rf"^{address}/{failure}: cannot be downloaded \(.*{message}\);.* put the file at"
    ):
        downloads.fetch(f"{address}/{failure}", tmp_path / "kept/file")
    assert list((tmp_path / "kept").iterdir()) == []


def tatoeba_lines(count):
    return [f"Sentence {n} is here." for n in range(count)], [f"Satz {n} ist hier." for n in range(count)]


def test_tatoeba_is_downloaded_and_split_by_english_sentence(tmp_path, published, monkeypatch):
    folder, address = published
    english, german = tatoeba_lines(100)
    with zipfile.ZipFile(folder / "de-en.txt.zip", "w") as archive:
        archive.writestr("Tatoeba.de-en.en", "\n".join([*english, *english, ""]))
        archive.writestr("Tatoeba.de-en.de", "\n".join([*german, *(f"Hier ist Satz {n}." for n in range(100)), ""]))
    monkeypatch.setattr(tatoeba, "ADDRESS", address)
    corpus = corpora.tatoeba_pairs("de", "en", tmp_path / "kept")
    train, valid, test = (list(corpus.splits[split]()) for split in corpora.SPLITS)
    assert (len(train), len(valid), len(test)) == (180, 5, 5)
    assert all(("Satz" in source and "Sentence" in target) for source, target in train)
    held_out = {target for _, target in valid + test}
    assert len(held_out) == 10 and not held_out & {target for _, target in train}
    monkeypatch.setattr(tatoeba, "ADDRESS", "http://127.0.0.1:9/nothing")
    assert corpora.tatoeba_pairs("de", "en", tmp_path / "kept/tatoeba").files == corpus.files
    swapped = corpora.tatoeba_pairs("en", "de", tmp_path / "kept").splits["train"]()
    assert list(swapped) == [pair[::-1] for pair in train]
    path = tmp_path / "kept/tatoeba/en-de.val.de.gz"
    before = path.read_bytes()
    path.unlink()
    corpora.tatoeba_pairs("de", "en", tmp_path / "kept")
    assert path.read_bytes() == before, "made again from the archive"
    write_lines(tmp_path / "broken/tatoeba/de-en.txt.zip", ["no archive"])
    with pytest.raises(InputError, match=r"de-en\.txt\.zip: .*; delete the file to download it again"):
        corpora.tatoeba_pairs("en", "de", tmp_path / "broken")


def test_the_tatoeba_split_is_stable_when_sentences_are_added():
    original, extended = (list(zip(*tatoeba_lines(count), strict=True)) for count in (1000, 1100))
    for shorter, longer in zip(
        tatoeba.split_by_english(original)[1:], tatoeba.split_by_english(extended)[1:], strict=True
    ):
        assert len(set(shorter) - set(longer)) < len(shorter) / 4
    train, val, test = tatoeba.split_by_english([*extended, ("SENTENCE 5 is here", "anders"), ("", "leer")])
    sides = [{comparison_key(english) for english, _ in part} for part in (train, val, test)]
    assert not (sides[0] & sides[1] or sides[0] & sides[2] or sides[1] & sides[2])


@pytest.mark.parametrize("corpus", ["tatoeba", "gettext", "gettext_permissive", "wmt14"])
@pytest.mark.parametrize("languages", [("de", "fr"), ("en", "en")])
def test_corpora_that_need_english_reject_other_pairs(tmp_path, corpus, languages):
    config = DataConfig(corpus=corpus, source_language=languages[0], target_language=languages[1])
    with pytest.raises(InputError, match=f"corpus={corpus} has English on one side"):
        corpora.of_config(config, tmp_path)


def test_unknown_corpora_and_unused_files_are_errors(tmp_path):
    with pytest.raises(
        InputError, match="corpus=wmt99: unknown corpus; valid: files, multi30k, tatoeba, gettext, gettext_permissive"
    ):
        corpora.of_config(DataConfig(corpus="wmt99"), tmp_path)
    with pytest.raises(InputError, match="corpus=multi30k has no language 'xx'; valid: en, de, fr"):
        corpora.multi30k("en", "xx", tmp_path)
    with pytest.raises(InputError, match="corpus=multi30k has its own text"):
        corpora.of_config(DataConfig(corpus="multi30k"), tmp_path, [{"train": ("a", "b")}])
    with pytest.raises(InputError, match="corpus=files needs training files"):
        corpora.of_config(DataConfig(), tmp_path)


def test_named_corpora_are_combined_in_all_directions(tmp_path):
    for stem in tatoeba.STEMS:
        write_lines(tmp_path / f"tatoeba/en-de.{stem}.en.gz", [f"{stem} five"], gzip.open)
        write_lines(tmp_path / f"tatoeba/en-de.{stem}.de.gz", [f"{stem} fünf"], gzip.open)
    config = DataConfig(corpus="tatoeba,tatoeba", directions=("en-de", "de-en"))
    corpus = corpora.of_config(config, tmp_path)
    assert config.tags == ("<2de>", "<2en>") * 2
    assert list(corpus.splits["test"]()) == [("<2de> test five", "test fünf"), ("<2en> test fünf", "test five")] * 2
    assert [list(part()) for part in corpus.training_parts[:2]] == [
        [("<2de> train five", "train fünf")],
        [("<2en> train fünf", "train five")],
    ]
    for corpus_name, directions in (("files,tatoeba", ()), ("files", ("en-de",)), ("tatoeba,wmt99", ())):
        with pytest.raises(InputError, match="files cannot be combined|directions cannot|corpus=wmt99: unknown corpus"):
            corpora.of_config(DataConfig(corpus=corpus_name, directions=directions), tmp_path, [{"train": ("a", "b")}])
    with pytest.raises(InputError, match="'en' is not a direction"):
        DataConfig(directions=("en",))


@pytest.fixture(scope="module")
def tfds_data_set():
    """Registers a small translation data set with tensorflow_datasets and returns its name."""
    import tensorflow_datasets as tfds

    class SmallTranslate(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            return self.dataset_info_from_configs(features=tfds.features.Translation(languages=("de", "en", "fr")))

        def _split_generators(self, manager):
            return {"train": self._generate_examples(30), "validation": self._generate_examples(3)}

        def _generate_examples(self, count):
            for n in range(count):
                yield n, {"en": f"number {n}", "de": f"Größe {n}", "fr": f"nombre {n}"}

    return SmallTranslate.name


def test_tensorflow_datasets(tmp_path, tfds_data_set):
    config = DataConfig(corpus=f"tfds:{tfds_data_set}", source_language="en", target_language="de")
    corpus = corpora.of_config(config, tmp_path)
    assert set(corpus.splits) == {"train", "valid"}
    for _ in range(2):
        train = list(corpus.splits["train"]())
        assert sorted(train) == sorted((f"number {n}", f"Größe {n}") for n in range(30))
        assert train == list(corpus.splits["train"]())
    assert corpus.identity == {"tensorflow_datasets": f"{tfds_data_set}/1.0.0"}


def test_tensorflow_datasets_reports_missing_parts(tmp_path, tfds_data_set, monkeypatch):
    import tensorflow_datasets as tfds

    def fail(self):
        raise tfds.download.DownloadError("Failed to get url http://host/a.gz.\nHTTP code: 404")

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", fail)
    with pytest.raises(InputError, match=f"^corpus=tfds:{tfds_data_set}: not available: .*http://host/a.gz. HTTP code"):
        list(corpora.tensorflow_datasets(tfds_data_set, "en", "de", tmp_path).splits["train"]())
    with pytest.raises(InputError, match="has no texts in en and cs; its languages: de, en, fr"):
        corpora.tensorflow_datasets(tfds_data_set, "en", "cs", tmp_path)
    with pytest.raises(InputError, match="corpus=tfds:no_such_set: no such data set"):
        corpora.tensorflow_datasets("no_such_set", "en", "de", tmp_path)
