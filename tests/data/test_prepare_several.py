"""Several corpora in one folder, with tags, and with the vocabulary of an earlier preparation."""

import dataclasses

import numpy as np
import pytest

from t2t_keras.data.journal import Journal
from t2t_keras.data.output_limit import output_limit
from t2t_keras.data.prepare import PreparedData, prepare
from t2t_keras.data.sources import corpora
from t2t_keras.errors import InputError
from t2t_keras.text.tokenizer import Tokenizer
from tests.data.small_corpora import CONFIG, assert_same_folder, corpus_of, random_pairs

FIRST, SECOND, HELD_OUT = random_pairs(130, 1), random_pairs(70, 2), random_pairs(9, 3)
TAGGED = dataclasses.replace(CONFIG, vocab_size=325, tags=("<2de>", ""))


def combined_corpora() -> corpora.Corpus:
    """Returns two corpora; the second repeats a held-out pair and a held-out source of the first."""
    repeated = [HELD_OUT[0], (HELD_OUT[1][0], random_pairs(1, 4)[0][1])]
    first, second = corpus_of(train=FIRST, test=HELD_OUT), corpus_of(train=[*SECOND, *repeated], valid=SECOND[:5])
    return corpora.combined([first, second], TAGGED.tags)


def ignore_line(line: str) -> None:
    del line


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> PreparedData:
    return prepare(combined_corpora(), TAGGED, tmp_path_factory.mktemp("data"), ignore_line, shard_pairs=60)


def test_each_source_starts_with_the_tag_of_its_corpus(data):
    assert data.text("test")[0] == [f"<2de> {source}" for source, _ in HELD_OUT]
    assert data.text("valid")[0] == [source for source, _ in SECOND[:5]]
    tag = data.tokenizer.symbols["<2de>"]
    first_ids = data.split("train").source_ids(np.arange(len(data.split("train"))))[:, 0]
    assert data.part_sizes == [130, 65]
    assert (first_ids[:130] == tag).all() and (first_ids[130:] != tag).all()


def test_held_out_text_is_compared_without_tags(data):
    assert data.counts["train"]["held_out"] == 7  # five of "valid", two of the first corpus's test set


def test_shards_do_not_mix_corpora_and_their_size_does_not_matter(data, tmp_path):
    assert len(list(data.directory.glob("train.*.source.ids.npy"))) == 5  # 60 + 60 + 10, 60 + 12
    unsharded = prepare(combined_corpora(), TAGGED, tmp_path, ignore_line)
    assert unsharded.part_sizes == data.part_sizes
    for ids in ("source_ids", "target_ids"):
        sharded_ids, unsharded_ids = (
            getattr(prepared.split("train"), ids)(np.arange(195)) for prepared in (data, unsharded)
        )
        np.testing.assert_array_equal(sharded_ids, unsharded_ids)


def test_the_limit_of_outputs_suffices_for_each_corpus(data):
    train, cut = data.split("train"), data.part_sizes[0]
    sides = train.source_lengths, train.target_lengths
    parts = [[tuple(side[rows] for side in sides)] for rows in (slice(cut), slice(cut, None))]
    assert data.output_limit == output_limit(TAGGED, parts) != output_limit(TAGGED, [[sides]])


def test_an_interruption_changes_nothing(data, tmp_path, monkeypatch):
    add = Journal.add

    def add_and_interrupt(journal, name, result):
        add(journal, name, result)
        raise KeyboardInterrupt

    for _ in range(50):
        with monkeypatch.context() as patched:
            patched.setattr(Journal, "add", add_and_interrupt)
            try:
                prepare(combined_corpora(), TAGGED, tmp_path, ignore_line, shard_pairs=60)
                break
            except KeyboardInterrupt:
                pass
    assert PreparedData.open(tmp_path).part_sizes == data.part_sizes
    assert_same_folder(tmp_path, data.directory)


def test_combined_corpora_have_distinct_identities_and_a_single_one_is_unchanged(tmp_path):
    single = corpus_of(train=FIRST)
    assert corpora.combined([single]) is single
    both = corpora.combined([single, corpus_of("2", train=SECOND)])
    assert both.identity == {"1_text": "1", "2_text": "2"}
    assert list(both.splits["train"]()) == [*FIRST, *SECOND]
    with pytest.raises(InputError, match=r"1 tags \('<a>'\) for 2 corpora"):
        corpora.combined([single, single], ["<a>"])


@pytest.mark.parametrize("symbol", ["2de", "<2 de>", "<=2de>", "<>", "<<a>>"])
def test_invalid_symbols_are_rejected(symbol):
    with pytest.raises(InputError, match="is not a valid symbol"):
        dataclasses.replace(CONFIG, symbols=(symbol,))


def test_an_existing_vocabulary_is_copied(data, tmp_path):
    config = dataclasses.replace(CONFIG, symbols=("<2de>",))
    other = prepare(corpus_of(train=SECOND, test=HELD_OUT), config, tmp_path, ignore_line, vocab_from=data.vocab_path)
    assert other.vocab_path.read_bytes() == data.vocab_path.read_bytes()


def test_an_existing_vocabulary_is_extended(data, tmp_path):
    pairs = [(f"<more> жук {n % 9}", f"жаба {n % 11}") for n in range(99)]
    config = dataclasses.replace(CONFIG, symbols=("<more>",), extend_vocab=4)
    lines: list[str] = []
    other = prepare(corpus_of(train=pairs), config, tmp_path, lines.append, vocab_from=data.vocab_path)
    count = data.tokenizer.vocab_size
    assert other.tokenizer.pieces(range(count)) == data.tokenizer.pieces(range(count))
    assert other.tokenizer.vocab_size == count + 5 and "<more>" in other.tokenizer.symbols
    assert f"taking the vocabulary {data.vocab_path}, and 4 more entries" in lines
    Tokenizer.load(tmp_path / "vocab.model")


def test_mismatched_vocabularies_and_extensions_without_one_are_rejected(data, tmp_path):
    corpus = corpus_of(train=SECOND, test=HELD_OUT)
    prepare(corpus, CONFIG, tmp_path, ignore_line)
    with pytest.raises(InputError, match=r"already prepared with different settings \(.*vocab_from: None -> \w{12}"):
        prepare(corpus, CONFIG, tmp_path, ignore_line, vocab_from=data.vocab_path)
    with pytest.raises(InputError, match="--extend_vocab=4 needs --vocab_from"):
        prepare(corpus, dataclasses.replace(CONFIG, extend_vocab=4), tmp_path / "new", ignore_line)
