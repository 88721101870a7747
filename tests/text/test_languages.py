import pytest

from t2t_keras.text.language_codes import base_language, best_match, language_of_name
from t2t_keras.text.languages import east_asian, language_of, written_in


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("zh", "zh"),
        ("zh_TW", "zh"),
        ("ZH-Hant-HK", "zh"),
        ("yue", "zh"),
        ("ja", "ja"),
        ("jpn_Jpan", "ja"),
        ("ko-KR", "ko"),
    ],
)
def test_codes_of_east_asian_languages(code, expected):
    assert east_asian(code) == expected


@pytest.mark.parametrize("code", ["de", "en", "", "zha", "jav", "kor2"])
def test_codes_of_other_languages(code):
    assert east_asian(code) is None


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["他在图书馆看书。", "今天天气很好！"], "zh"),
        (["《の》是一個日文字母，在中文的招牌上也常常看得見，但是很少有人知道它怎麼讀。"], "zh"),
        (["私は図書館で本を読みます。"], "ja"),
        (["나는 도서관에서 책을 읽는다."], "ko"),
        (["iPhone 15 的价格是多少？我想买一部新的手机。"], "zh"),
        (["Das Wort 图书馆 heißt Bibliothek."], None),
        (["Ein Mann steht auf einer Leiter."], None),
        (["यह किताब अच्छी है"], None),
        (["12 + 3 = 15", ""], None),
        ([], None),
    ],
)
def test_the_detected_writing_system(lines, expected):
    assert written_in(lines) == expected


def test_the_configured_language_applies_unless_references_are_east_asian():
    chinese = ["他在图书馆看书。"]
    assert [language_of(chinese, code) for code in ("de", "ja", "")] == ["zh", "ja", "zh"]
    assert language_of(["Ein Mann steht auf einer Leiter."], "de") == "de"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *(
            ("train.en", "en"),
            ("a.de.gz", "de"),
            ("a.pt_BR.txt", "pt_BR"),
            ("a.zh-CN.txt.xz", "zh-CN"),
            ("en-de.fr", "fr"),
        ),
        *(("train.deu", "deu"), ("dev.eng_Latn", "eng_Latn"), ("a.zho_Hans.gz", "zho_Hans"), ("a.cmn.txt", "cmn")),
        *(
            ("eng_Latn.devtest", "eng_Latn"),
            ("a.sr_Latn_RS", "sr_Latn_RS"),
            ("newstest-src.en.sgm", "en"),
            ("a.fr.zst", "fr"),
        ),
        *(("train.tok", None), ("train.bpe", None), ("a.new", None), ("a.raw", None), ("a.log", None)),
        *(("train.src", None), ("en", None), ("a.txt", None), ("a.gz", None), ("a.tsv", None), ("", None)),
    ],
)
def test_the_language_that_a_name_ends_in(name, expected):
    assert language_of_name(name) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [("deu", "de"), ("ger", "de"), ("eng_Latn", "en"), ("por-BR", "pt"), ("DE_at", "de"), ("cmn", "cmn"), ("x", "x")],
)
def test_a_code_of_three_letters_is_the_same_language(code, expected):
    assert base_language(code) == expected


@pytest.mark.parametrize(
    ("language", "codes", "expected"),
    [
        ("en", ["de", "en-US", "EN"], "EN"),
        ("en", ["de", "en-US", "en-GB"], "en-US"),
        ("en_gb", ["en", "en-US", "en-GB"], "en-GB"),
        ("en-GB", ["en-US", "en"], "en"),
        ("en-GB", ["en-US"], None),
        ("eng_Latn", ["en-US"], "en-US"),
        ("srp_Latn", ["sr-Cyrl", "sr-Latn-RS"], "sr-Latn-RS"),
        ("srp_Latn", ["sr-Cyrl"], None),
        ("de", ["en", "fr", ""], None),
        ("de", [], None),
    ],
)
def test_the_code_that_fits_a_language(language, codes, expected):
    assert best_match(language, codes) == expected
