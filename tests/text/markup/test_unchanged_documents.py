"""Documents whose texts translate to themselves, or word by word, keep every byte of their markup."""

import random

import pytest

from t2t_keras.text.markup.documents import MarkedDocument, Markup
from t2t_keras.text.markup.placing import AlignedText
from t2t_keras.text.words import units

ATTRIBUTES = ("alt", "title")
WORDS = [
    "dog",
    "Dogs",
    "a",
    "I",
    "10",
    "café",
    "東京",
    "می\u200cروم",
    "don't",
    "U.S.",
    "e-mail",
    "👨\u200d👩\u200d👧",
    "☃",
    "🇩🇪",
]
ENTITIES = [
    "&eacute;",
    "&#233;",
    "&shy;",
    "&#8203;",
    "&zwj;",
    "&#x200c;",
    "&nbsp;",
    "&amp;",
    "&lt;",
    "&copy;",
    "&#x2060;",
    "&#10;",
]
FORMATS = ["\u00ad", "\u200b", "\u2060", "\ufeff", "\u200d", "\u200c", "\u200e", "\u2067", "\u2069", "\x01"]
SPACES = [" ", "  ", "\n", " \n\t", "\xa0", "\u202f", "\u3000", "\r\n"]
MARKS = [".", ",", " (", ") ", "?", "!", '"', " – ", "'", ":", "%", "/", "“", "”", "…", "。"]
PLACEHOLDERS = ["{name}", "{{x}}", "${a}", "%s", "%(n)d", "%1$s", "{0}", "{}", "100%", "{% if x %}", "#{y}", "{a: {b}}"]
INLINE = ["b", "i", "em", "a", "span", "sup", "sub", "B", "font", "ruby", "q"]
BLOCKS = ["p", "div", "li", "ul", "table", "tr", "td", "h1", "DIV", "section", "dl", "dd"]
CLOSED = [
    "<!-- a {b --> ",
    "<!---->",
    "<br>",
    "<BR/>",
    "<wbr>",
    '<img src=a.png alt="A dog">',
    "<img alt=cat src=x>",
    "<hr>",
]
KEPT = [
    *(
        "<script>if (a < b && {c}) {</script>",
        "<style>p { x: y }</style>",
        "<code>x &lt; {y</code>",
        "<pre>a\n b</pre>",
    ),
    *("<svg><path d='M1'/></svg>", "<textarea>kept</textarea>", "<kbd>Ctrl</kbd>", "<![CDATA[ a > b ]]>"),
]
ODD = ["<b>", "</b>", "</i>", "</p>", "</x>", "<a href='x'>", "{", "}", " { ", "<", "&", "& ", "'", "''", "'{'", "#"]


class Writer:
    """Generates documents from a seed."""

    def __init__(self, seed: int, is_xml: bool = False, is_spaced: bool = False) -> None:
        self.draw, self.is_xml, self.is_spaced = random.Random(seed), is_xml, is_spaced

    def text(self) -> str:
        if self.is_spaced:
            words = [self.draw.choice(["dog", "a", "10", "runs", "U.S.", "{x}", "%s"]) for _ in range(5)]
            return "".join(word + self.draw.choice(SPACES[:4]) for word in words)
        kinds = [WORDS, WORDS, WORDS, ENTITIES, FORMATS, SPACES, SPACES, MARKS, PLACEHOLDERS]
        if self.is_xml:
            kinds = [
                WORDS,
                WORDS,
                ["&#233;", "&#173;", "&amp;", "&lt;", "&#xa0;"],
                FORMATS[:-1],
                SPACES[:-1],
                PLACEHOLDERS,
            ]
        return "".join(self.draw.choice(self.draw.choice(kinds)) for _ in range(self.draw.randrange(7)))

    def message(self, depth: int = 0) -> str:
        name, kind = (
            self.draw.choice(["n", "g.x", " count "]),
            self.draw.choice(["plural", "select", " selectordinal "]),
        )
        selectors = self.draw.sample(["one", "=0", "=12", "few", "male", "other"], self.draw.randrange(1, 4))
        offset = self.draw.choice(["", "", " offset:1"])
        inner = []
        for selector in selectors:
            choices = ["# dogs", "{name} has # {b}", "it''s", "'{'x'}'", " a dog ", "#", ""]
            text = self.draw.choice(choices) + self.draw.choice(["", " runs", "{n, number}"])
            if depth < 4 and self.draw.random() < 0.3:
                text += self.message(depth + 1)
            inner.append(f"{self.draw.choice(['', ' '])}{selector} {{{text}}}")
        return f"{{{name},{kind},{offset}{' '.join(inner)}}}"

    def element(self, depth: int) -> str:
        name = self.draw.choice(INLINE if self.draw.random() < 0.7 else BLOCKS)
        extra = ["", "", ' class="x"', " translate=no", " translate", ' translate="YES"', " class='a notranslate'"]
        extra += [" title='A ship'", ' title="a &quot;b&quot; {c}"', " alt=x TITLE=ship"]
        attributes = self.draw.choice(extra)
        if self.is_xml:
            attributes = self.draw.choice(["", ' k="v"', ' translate="no"', " title='A ship'"])
        end = "" if not self.is_xml and self.draw.random() < 0.1 else f"</{name}>"
        return f"<{name}{attributes}>{self.content(depth + 1)}{end}"

    def content(self, depth: int = 0) -> str:
        result = []
        for _ in range(self.draw.randrange(1, 5)):
            chance = self.draw.random()
            if chance < 0.4 or depth > 5:
                result.append(self.text())
            elif chance < 0.75:
                result.append(self.element(depth))
            elif chance < 0.8:
                result.append(self.message())
            elif self.is_xml:
                result.append(self.draw.choice(["<x/>", "<!-- c -->", "<![CDATA[ <z> {]]>", "<?php x ?>"]))
            elif chance < 0.95:
                result.append(self.draw.choice(self.draw.choice([CLOSED, KEPT])))
            else:
                result.append(self.draw.choice(ODD))
        return (self.draw.choice([" ", "\n"]) if self.is_spaced else "").join(result)


def unchanged(text: str) -> AlignedText:
    return AlignedText(text, tuple((*unit, *unit) for unit in units(text)))


def uppercased(text: str) -> AlignedText:
    return AlignedText(text.upper(), tuple((*unit, *unit) for unit in units(text)))


def unlinked(text: str) -> AlignedText:
    return AlignedText(text, ())


def returned(document: str, markup: Markup, attributes=(), translate=unchanged) -> str:
    parsed = MarkedDocument.parsed(document, markup, "in", attributes)
    return parsed.filled([translate(segment.text) for segment in parsed.segments])


def check_html(seeds, attributes, translate):
    for seed in seeds:
        document = Writer(seed).content()
        assert returned(document, "html", attributes, translate) == document, seed


def check_xml(seeds, attributes):
    for seed in seeds:
        document = f"<d>{Writer(seed, is_xml=True).content()}</d>"
        assert returned(document, "xml", attributes) == document, seed


def check_placeholders(seeds):
    for seed in seeds:
        writer = Writer(seed)
        pieces = [writer.draw.choice([writer.text(), writer.message(), writer.draw.choice(ODD)]) for _ in range(4)]
        assert returned("".join(pieces), "placeholders") == "".join(pieces), seed


def check_words(seeds):
    """Uppercase words are linked one to one with their sources."""
    for seed in seeds:
        document = Writer(seed, is_spaced=True).content()
        result = returned(document, "html", ATTRIBUTES, uppercased)
        # Values without quotes get quotes.
        assert result.lower().replace('"', "") == document.lower().replace('"', ""), seed


@pytest.mark.parametrize("attributes", [(), ATTRIBUTES])
def test_html(attributes):
    check_html(range(150), attributes, unchanged)


def test_html_without_links():
    check_html(range(150), ATTRIBUTES, unlinked)


def test_xml():
    check_xml(range(150), ATTRIBUTES)


def test_placeholders():
    check_placeholders(range(150))


def test_html_word_by_word():
    check_words(range(150))


@pytest.mark.integration
def test_thousands_of_documents():
    for attributes in ((), ATTRIBUTES):
        check_html(range(150, 2000), attributes, unchanged)
        check_xml(range(150, 1000), attributes)
    check_html(range(2000, 3000), ATTRIBUTES, unlinked)
    check_placeholders(range(150, 2000))
    check_words(range(150, 2000))
