"""Protected and unprotected spans."""

import string

import pytest

from t2t_keras.errors import InputError
from t2t_keras.text.protection.spans import KINDS, NOTHING, SpanFinder

KNOWN = frozenset(string.ascii_letters + string.digits + " .,!?'-")


def find_texts(finder: SpanFinder, text: str) -> list[str]:
    return [text[span.start : span.end] for span in finder.spans(text)]


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("(see https://x.org/a_(b)).", ["https://x.org/a_(b)"]),
        ("See [http://x.org/a], please!", ["http://x.org/a"]),
        ("https://a.org/x?y=1&z=2#part", ["https://a.org/x?y=1&z=2#part"]),
        ("https://a.org, https://b.org and https://c.org.", ["https://a.org", "https://b.org", "https://c.org"]),
        ("https://a.org,https://b.org", ["https://a.org", "https://b.org"]),
        ("Visit www.example.de/a. Or example.com!", ["www.example.de/a", "example.com"]),
        ("ftp://a/b and s3://bucket/key", ["ftp://a/b", "s3://bucket/key"]),
        ("It says “https://a.org”.", ["https://a.org"]),
        ("见 https://a.org/b，谢谢。（example.com/c）", ["https://a.org/b", "example.com/c"]),
        ("请访问https://a.org/b，或看example.com吧", ["https://a.org/b", "example.com"]),
        ("Is this it.The end", []),
        ("He said: no://", []),
    ],
)
def test_addresses_of_pages(text, spans):
    assert find_texts(SpanFinder(["urls"]), text) == spans


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("Mail a.b+c@d-e.org, or x@y.co.uk.", ["a.b+c@d-e.org", "x@y.co.uk"]),
        ("<x@y.org>", ["x@y.org"]),
        ("mailto:x@y.org", ["mailto:x@y.org"]),
        ("联系x@y.org吧", ["x@y.org"]),
        ("at 5@home or @name", []),
    ],
)
def test_addresses_of_mail(text, spans):
    assert find_texts(SpanFinder(["emails"]), text) == spans


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("It drives 5 km/h, not 5.5 km/h.", ["5 km/h", "5.5 km/h"]),
        ("3.5 GB, 1,500 MiB and 20GB", ["3.5 GB", "1,500 MiB", "20GB"]),
        ("20 % of 20°C at 3 m²", ["20 %", "20°C", "3 m²"]),
        ("10-20 kg or 10 – 20 kg", ["10-20 kg", "10 – 20 kg"]),
        ("€5, 5 €, $3.50 and EUR 20", ["€5", "5 €", "$3.50", "EUR 20"]),
        ("version 1.2.3, v2, v2.0 and 2.21.0rc1", ["1.2.3", "v2", "v2.0", "2.21.0rc1"]),
        ("5\u00a0km and 1\u202f000 m", ["5\u00a0km", "1\u202f000 m"]),
        ("它重10kg了，价格$5元，是v1.2.3版", ["10kg", "$5", "v1.2.3"]),
        ("5 men in 2010 at 5 in the morning, 3.5 times", []),
        ("5 kmh, 5 gx, a5 km and 10th", []),
        ("$1.5M, €2,50x and 5.5 kmh", []),
    ],
)
def test_quantities_and_versions(text, spans):
    assert find_texts(SpanFinder(["numbers"]), text) == spans


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        (r"Open C:\Program Files\App\x.exe, or \\server\share\a.txt now", None),
        (r"Delete C:\a\b.", [r"C:\a\b"]),
        ("Edit /etc/hosts, ~/x/y.txt or ./run.sh.", ["/etc/hosts", "~/x/y.txt", "./run.sh"]),
        ("Read README.md and src/a/b.py!", ["README.md", "src/a/b.py"]),
        ("Unpack data.tar.gz (a.zip).", ["data.tar.gz", "a.zip"]),
        ("and/or, 1/2, either / or, end.The", []),
    ],
)
def test_names_of_files(text, spans):
    windows = [r"C:\Program Files\App\x.exe", r"\\server\share\a.txt"]
    assert find_texts(SpanFinder(["files"]), text) == (windows if spans is None else spans)


@pytest.mark.parametrize("text", ["1'" * 20_000, "1\u00a0" * 20_000])
def test_a_long_row_of_numbers(text):
    assert find_texts(SpanFinder(["numbers"]), f"{text} 5 km") == ["5 km"]


def test_a_long_row_of_closing_brackets():
    assert find_texts(SpanFinder(["urls"]), "(http://x.org/a" + ")" * 50_000) == ["http://x.org/a"]


def test_kinds_are_joined_and_the_longest_span_wins():
    text = "https://x.org/a.txt takes 5 GB, says x@y.org in a.txt"
    assert find_texts(SpanFinder(["urls,emails", "numbers, files"]), text) == [
        *("https://x.org/a.txt", "5 GB", "x@y.org", "a.txt")
    ]
    assert set(KINDS) == {"urls", "emails", "numbers", "files"}


def test_patterns_of_a_user_have_groups_flags_and_commas():
    finder = SpanFinder([r"(?i)(ab)\1{1,2}", r"\bK\w+s\b"])
    assert find_texts(finder, "Keras has abAB and ababAB, Kix.") == ["Keras", "abAB", "ababAB"]
    assert not finder.has_spans("nothing here")
    assert find_texts(SpanFinder([r"\b"]), "a b") == []


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("(", r"--protect=\(: not a valid regular expression: .*unterminated"),
        ("urls,mails", "--protect=urls,mails: unknown kind 'mails'; valid: urls, emails, numbers, files"),
        ("x*", r"--protect=x\*: the regular expression matches an empty text"),
        ("a{99999999999999999999}", "--protect=a.*: not a valid regular expression"),
    ],
)
def test_an_invalid_value_is_named_with_its_flag(value, problem):
    with pytest.raises(InputError, match=problem):
        SpanFinder([value])


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("Hello 😊 you", ["😊"]),
        ("👩\u200d💻 and 👩🏽\u200d🚀\u200d", ["👩\u200d💻", "👩🏽\u200d🚀\u200d"]),
        ("👍🏽👍 ok", ["👍🏽👍"]),
        ("🇩🇪 🇫🇷🇮🇹", ["🇩🇪", "🇫🇷🇮🇹"]),
        ("🏴\U000e0067\U000e0062\U000e007f flag", ["🏴\U000e0067\U000e0062\U000e007f"]),
        ("Room 1\ufe0f\u20e3 and 2", ["1\ufe0f\u20e3"]),
        ("A heart ❤\ufe0f beats", ["❤\ufe0f"]),
        ("cafe\u0301, naïve words", ["cafe\u0301", "naïve"]),
        ("I like 我爱北京 much", ["我爱北京"]),
        ("Это dog Привет", ["Это", "Привет"]),
        ("a ★ b → c", ["★", "→"]),
        ("yes and/or no", ["and/or"]),
        ("(https://x.org/a).", ["(https://x.org/a)"]),
        ("good😊bad", ["😊"]),
        ("tab\tzero\u200bwidth\u00a0blank", []),
        ("man’s hat – it’s… big", []),
        ("What???? Yes!!! ok?! no..", ["???", "!!"]),
        ("---- ____ =====", ["----", "____", "====="]),
    ],
)
def test_unknown_characters(text, spans):
    finder = SpanFinder([], KNOWN)
    assert find_texts(finder, text) == spans
    assert all(span.is_removed for span in finder.spans(text))


def test_a_rare_character_does_not_protect_its_chinese_neighbours():
    finder = SpanFinder([], frozenset("我爱京"))
    assert find_texts(finder, "我爱北京") == ["北"]


def test_the_case_of_known_letters_does_not_matter_to_a_model_of_lowercase():
    assert find_texts(SpanFinder([], frozenset("abc ")), "AB c") == ["AB"]
    assert find_texts(SpanFinder([], frozenset("abc "), lowercases=True), "AB c") == []


def test_a_span_of_a_kind_with_an_unknown_character_is_unknown_as_a_whole():
    text = "See https://x.org/ä now"
    (span,) = SpanFinder(["urls"], KNOWN | {":", "/"}).spans(text)
    assert (text[span.start : span.end], span.is_unknown, span.is_removed) == ("https://x.org/ä", True, True)
    (span,) = SpanFinder(["urls"], KNOWN | set(":/ä")).spans(text)
    assert not span.is_unknown and not span.is_removed


def test_marks_are_read_as_their_known_equivalents():
    finder = SpanFinder([], KNOWN)
    assert finder.readable("man’s – wait…") == "man's - wait..."
    assert SpanFinder([], KNOWN | {"’"}).readable("man’s") == "man’s"
    assert find_texts(SpanFinder([], KNOWN - {"'"}), "a ’ b") == ["’"]


def test_plain_text_needs_one_test_only():
    finder = SpanFinder(["urls,emails,numbers,files"], KNOWN)
    assert len(finder._tests) == 1
    assert not finder.has_spans("A man in a blue shirt is standing on a ladder, isn't he? Yes.")


def test_without_a_record_or_with_nothing_no_character_is_unknown():
    for finder in (SpanFinder(), SpanFinder([NOTHING], KNOWN)):
        assert not finder.has_spans("😊 ????") and finder.spans("😊 ????") == []
    assert find_texts(SpanFinder([NOTHING, "urls"], KNOWN), "😊 https://a.org") == ["https://a.org"]
