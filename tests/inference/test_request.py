"""Encoding of requests as token ids, and invalid requests."""

import functools

import numpy as np
import pytest

from t2t_keras.config import DataConfig, DecodeConfig
from t2t_keras.errors import InputError
from t2t_keras.inference.request import (
    EncodedRequest,
    Request,
    RequestEncoder,
    numbered,
    option_arrays,
    request_batches,
)
from t2t_keras.inference.translator import Translator
from t2t_keras.tasks.registry import task
from t2t_keras.text.subwords import serialized_subwords
from t2t_keras.text.tokenizer import Tokenizer, trained_tokenizer
from tests.inference import tiny


def encoder(lowercase="none", max_source_length=256, excluded=(), **settings) -> RequestEncoder:
    return encoder_of(tiny.tokenizer(), excluded, lowercase, max_source_length, **settings)


def encoder_of(tokenizer, excluded=(), lowercase="none", max_source_length=256, **settings) -> RequestEncoder:
    config = DecodeConfig(**settings)
    return RequestEncoder(tokenizer, config, DataConfig(max_length=max_source_length, lowercase=lowercase), excluded)


def ids_of(text: str) -> tuple[int, ...]:
    return tuple(tiny.tokenizer().encode(text))


def test_fields_are_encoded_as_tokens():
    tokenizer = tiny.tokenizer()
    request = encoder().encode(Request("A man\tis", "Ein\u200b", ("blauen Hemd", "Hunde"), ("Schnee",)))
    assert request.parts == (tuple(tokenizer.encode("A man is")),)
    assert request.prefix == tuple(tokenizer.encode("Ein"))
    assert request.constraints == tuple((tuple(tokenizer.encode(phrase)),) for phrase in ("blauen Hemd", "Hunde"))
    alternatives = encoder().encode(Request("A man", constraints=(("Hund", "Leiter", "Hund"), "auf")))
    assert alternatives.constraints == (
        tuple(tuple(tokenizer.encode(word)) for word in ("Hund", "Leiter")),
        (ids_of("auf"),),
    )
    assert tuple(tokenizer.encode("Schnee")) == request.excluded[0]
    assert encoder(lowercase="both").encode(Request("A", "EIN")).prefix == tuple(tokenizer.encode("ein"))
    source_encoder = encoder(lowercase="source")
    encoded = source_encoder.encode(Request("A MAN", "EIN"))
    assert (encoded.parts, encoded.prefix) == ((tuple(tokenizer.encode("a man")),), tuple(tokenizer.encode("EIN")))
    assert source_encoder.target("A", "EIN") == "EIN"


def test_models_of_several_directions_need_a_tag():
    tokenizer = trained_tokenizer(tiny.SENTENCES, 350, symbols=["<2de>", "<2fr>"])
    data = DataConfig(directions=("en-de", "en-fr"))
    without_tag, with_tag = (RequestEncoder(tokenizer, DecodeConfig(tag=tag), data, ()) for tag in ("", "<2de>"))
    assert [without_tag.source(line) for line in ("<2fr> A man", "")] == ["<2fr> A man", ""]
    with pytest.raises(InputError, match="begin the text with <2de> or <2fr>, or use --tag"):
        without_tag.encode(Request("A man"))
    with pytest.raises(InputError, match="^line 2: this model has several target languages"):
        list(numbered(["<2fr> A man", "A man"], without_tag))
    assert with_tag.source("A man") == "<2de> A man"
    optional = DataConfig(directions=("en-de", "en-fr"), tags=("", "<2fr>"))
    assert RequestEncoder(tokenizer, DecodeConfig(), optional, ()).source("A man") == "A man"


def test_lines_and_requests_keep_their_order():
    requests = ["A man", Request("dogs"), "", Request(""), "snow"]
    actual = list(numbered(requests, encoder()))
    texts = ("A man", "dogs", "", "", "snow")
    expected = [(text, tuple(tiny.tokenizer().encode(text))) for text in texts]
    assert actual == [EncodedRequest((ids,) if ids else (), text) for text, ids in expected]


def test_words_cannot_be_excluded_without_word_boundaries():
    subwords = Tokenizer(serialized_subwords(["a_", "b_", *"ab_u0123456789;\\"]))
    request_encoder = encoder_of(subwords)
    assert request_encoder.encode(Request("a b", "a")).prefix == tuple(subwords.encode("a"))
    with pytest.raises(InputError, match="excluded: the vocabulary's entries do not mark the beginnings of words"):
        request_encoder.encode(Request("a b", excluded=("a",)))
    with pytest.raises(InputError, match="word alignment is not available: the vocabulary's entries"):
        Translator(subwords, tiny.transformer()).align_tokens([], [])


@pytest.mark.parametrize("phrase", ["Schnee", "A man", "ü", "日", "in"])
def test_all_spellings_are_excluded(phrase):
    tokenizer = tiny.tokenizer()
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    text = "▁" + phrase.replace(" ", "▁")

    def spellings(rest: str) -> list[tuple[int, ...]]:
        if not rest:
            return [()]
        firsts = [id for id in range(3, len(pieces)) if rest.startswith(pieces[id])]
        return [(id, *rest_spelling) for id in firsts for rest_spelling in spellings(rest[len(pieces[id]) :])]

    excluded = encoder().encode(Request("A man", excluded=(phrase,))).excluded
    expected = {*spellings(text), tuple(tokenizer.encode(phrase))}
    assert len(set(excluded)) == len(excluded) == min(len(expected), 64)
    assert set(excluded) <= expected
    assert max(map(len, excluded)) <= sorted(map(len, expected))[len(excluded) - 1], "the shortest spellings come first"


def test_punctuation_is_excluded_inside_words():
    excluded = encoder().encode(Request("A man", excluded=("!",))).excluded
    assert {tuple(tiny.tokenizer().pieces(ids)) for ids in excluded} >= {("!",), ("▁", "!")}
    excluded = encoder().encode(Request("A man", excluded=("dogs",))).excluded
    assert all(tiny.tokenizer().pieces(ids)[0].startswith("▁") for ids in excluded)


@pytest.mark.parametrize("vocab_type", ["bpe", "char", "byte"])
def test_byte_spellings_are_excluded_inside_words(vocab_type):
    tokenizer = tiny.tokenizer(vocab_type)
    encoded = encoder_of(tokenizer, ("😀", "dogs"))
    spellings = {tuple(tokenizer.pieces(ids)) for ids in encoded.excluded}
    smile = ("<0xF0>", "<0x9F>", "<0x98>", "<0x80>")
    assert spellings >= {smile, ("▁", *smile)}
    assert all(spelling[0].startswith("▁") for spelling in spellings - {smile})
    if vocab_type == "byte":
        assert spellings == {smile, ("▁", *smile), ("▁", "<0x64>", "<0x6F>", "<0x67>", "<0x73>")}


@functools.cache
def labels() -> Tokenizer:
    return trained_tokenizer(tiny.SENTENCES, 350, symbols=["<=B-LOC>", "<=O>", "<=negative>"])


def label_encoder(name: str, *excluded: str) -> RequestEncoder:
    return RequestEncoder(labels(), DecodeConfig(**task(name).decode), DataConfig(task=name), excluded)


@pytest.mark.parametrize("name", ["classification", "tagging"])
def test_labels_are_encoded_as_symbols(name):
    (symbol,) = labels().encode("<=negative>")
    encoder = label_encoder(name, "negative")
    assert encoder.excluded == ((symbol,),)
    encoder = label_encoder(name)
    assert encoder.encode(Request("A man", excluded=("negative",))).excluded == ((symbol,),)
    encoded = encoder.encode(Request("A man", "negative", ("negative",)))
    assert (encoded.prefix, encoded.constraints) == ((symbol,), (((symbol,),),))


def test_unknown_labels_are_rejected():
    encoder = label_encoder("tagging")
    encoder.check_labels("O B-LOC")
    with pytest.raises(InputError, match="^'B-XXX' is not a label of the model; valid: B-LOC, O, negative$"):
        encoder.check_labels("O B-XXX")


def test_restrictions_of_labels():
    encoder, tokens = label_encoder("tagging"), labels().symbols
    request_with_prefix = Request("A man", prefix="B-LOC  O", excluded=("negative",))
    assert encoder.encode(request_with_prefix).prefix == (tokens["<=B-LOC>"], tokens["<=O>"])
    assert encoder.encode(request_with_prefix).excluded == ((tokens["<=negative>"],),)
    for field, several in (("excluded", ("O B-LOC",)), ("constraints", ("O B-LOC",))):
        with pytest.raises(InputError, match=f"^{field}: 'O B-LOC' contains labels of several words, which never"):
            encoder.encode(Request("A man", **{field: several}))
    with pytest.raises(InputError, match="^constraints: only one of the labels of words"):
        encoder.encode(Request("A man", constraints=("O", "B-LOC")))
    with pytest.raises(InputError, match="prefix: its 3 tokens and an end symbol exceed the limit of 3"):
        encoder.encode(Request("A man", prefix="O O O"))
    with pytest.raises(InputError, match="prefix: 'B-LOC O' contains 'O', which is excluded"):
        encoder.encode(Request("A man", prefix="B-LOC O", excluded=("O",)))


@pytest.mark.parametrize("name", ["classification", "tagging"])
@pytest.mark.parametrize("restriction", [{"prefix": "neg"}, {"constraints": ("neg",)}, {"excluded": ("neg",)}])
def test_invalid_labels_are_rejected(name, restriction):
    message = f"{next(iter(restriction))}: 'neg' is not a label of the model; valid: B-LOC, O, negative"
    with pytest.raises(InputError, match=f"^{message}$"):
        label_encoder(name).encode(Request("A man", **restriction))
    with pytest.raises(InputError, match="excluded: 'neg' is not a label"):
        label_encoder(name, "neg")


def test_questions_without_a_context_are_rejected():
    """Blank lines are valid, as in other tasks."""
    translator = Translator(tiny.tokenizer(), tiny.transformer(), data=DataConfig(task="question_answering"))
    for bad in ("When?", Request("When?")):
        with pytest.raises(InputError, match="^text: there is no <context> between"):
            translator.check(bad)
        with pytest.raises(InputError, match="^line 3: text: there is no <context> between"):
            translator.translate(["", "When? <context> In 1843.", bad])
    for good in ("", "When? <context> In 1843."):
        translator.check(good), translator.check(Request(good))


LONG = "A man in a blue shirt. " * 4


@pytest.mark.parametrize(
    ("settings", "request_", "words"),
    [
        ({}, Request("A man", prefix=" "), ["prefix", "blank"]),
        ({}, Request("A man", constraints=("Hund", "")), ["constraints", "blank"]),
        ({}, Request("A man", constraints=("Hund", ())), ["constraints", "blank"]),
        ({}, Request("A man", constraints=(("Hund", ""),)), ["constraints", "blank"]),
        ({}, Request("A man", excluded=("\u200b",)), ["excluded", "blank"]),
        ({}, Request(" ", prefix="Ein"), ["prefix", "text is blank"]),
        ({}, Request("", constraints=("Ein",)), ["constraints", "text is blank"]),
        ({"max_source_length": 9}, Request(LONG, prefix="Ein"), ["prefix", "in parts"]),
        ({"max_source_length": 9}, Request(LONG, constraints=("Ein",)), ["constraints", "in parts"]),
        ({"sampling": True}, Request("A man", constraints=("Ein",)), ["constraints", "decode.sampling=true"]),
        ({"num_groups": 2}, Request("A man", constraints=("Ein",)), ["constraints", "decode.num_groups=2"]),
        ({"max_length_offset": 1}, Request("A", prefix=LONG), ["prefix", "limit of 3"]),
        ({"max_length_offset": 1}, Request("A", constraints=("Ein Mann", "Hunde")), ["constraints", "limit of 3"]),
        ({}, Request("A", prefix="Ein Mann", excluded=("Mann",)), ["prefix", "'Mann'", "excluded"]),
        ({"excluded": ("Mann",)}, Request("A", constraints=("Ein Mann",)), ["constraints", "'Mann'", "excluded"]),
    ],
)
def test_unsatisfiable_requests_are_rejected(settings, request_, words):
    with pytest.raises(InputError) as error:
        encoder(**settings).encode(request_)
    assert all(word in str(error.value) for word in words), str(error.value)
    with pytest.raises(InputError, match="^line 2: "):
        list(numbered(["A man", request_], encoder(**settings)))


def test_long_lines_support_excluded_words():
    encoded = encoder(max_source_length=9).encode(Request(LONG, excluded=("Hund",)))
    assert len(encoded.parts) > 1 and encoded.excluded


def test_constraints_in_the_prefix_do_not_count_towards_the_length():
    request = Request("A", prefix="Ein Mann", constraints=("Mann",))
    prefix = tiny.tokenizer().encode("Ein Mann")
    assert encoder(max_length_offset=len(prefix) - 1).encode(request).prefix == tuple(prefix)
    with pytest.raises(InputError, match="prefix"):
        encoder(max_length_offset=len(prefix) - 2).encode(request)


def test_characters_without_an_entry_are_rejected(tmp_path):
    """A vocabulary without byte fallback cannot spell everything."""
    import sentencepiece

    prefix = tmp_path / "plain"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(tiny.SENTENCES),
        model_prefix=str(prefix),
        vocab_size=100,
        model_type="bpe",
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
    )
    tokenizer = type(tiny.tokenizer()).load(f"{prefix}.model")
    plain = encoder_of(tokenizer)
    for field, value in (("prefix", "日"), ("constraints", ("日",)), ("excluded", ("日",))):
        with pytest.raises(InputError, match=f"{field}.*'日'"):
            plain.encode(Request("A man", **{field: value}))
    with pytest.raises(InputError, match="excluded"):
        encoder_of(tokenizer, ("日",))


def test_requests_with_different_options_have_separate_batches():
    requests = [
        EncodedRequest(((5,) * length,), "", *options)
        for length in (3, 9, 4)
        for options in [(), ((7,),), ((), (((8, 9),),)), ((7,), (), ((3,),)), ((), (), ((4,), (5, 6)))]
    ]
    batches = request_batches(requests, 1000)
    assert sorted(map(sorted, batches)) == [[0, 5, 10], [1, 6, 11], [2, 7, 12], [3, 8, 13], [4, 9, 14]]
    assert sorted(sum(request_batches(requests, 9), [])) == list(range(15))
    arrays = option_arrays([requests[3], requests[3]])
    assert set(arrays) == {"prefix", "excluded"} and arrays["excluded"].shape == (2, 1, 1)
    (excluded,) = option_arrays([requests[4]]).values()
    np.testing.assert_array_equal(excluded, [[[0, 4], [5, 6]]])
    (constraints,) = option_arrays([requests[2], EncodedRequest(((5,),), "", (), (((3,), (6,)), ((4,),)))]).values()
    expected = [[[[8, 9], [0, 0]], [[0, 0], [0, 0]]], [[[3, 0], [6, 0]], [[4, 0], [0, 0]]]]
    np.testing.assert_array_equal(constraints, expected)


def test_requests_with_many_phrases_count_as_long():
    many = EncodedRequest(((5,),), constraints=(((3, 4),) * 10,))
    assert request_batches([many] * 4, 40) == [[0, 1], [2, 3]]
