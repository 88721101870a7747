"""Tags and placeholders appear once each and well nested, for any translation and alignment."""

import random
import re
import sys
import xml.etree.ElementTree
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_keras.text.markup import placing
from t2t_keras.text.markup.documents import MarkedDocument
from t2t_keras.text.markup.placing import AlignedText
from t2t_keras.text.markup.reading import Part
from t2t_keras.text.markup.segments import Segment, SourceUnit, segments
from t2t_keras.text.words import units

HTML = [
    "<p>The <b>quick</b> fox jumps.</p>",
    "<p>Read <a href='/x?a=1&amp;b=2'>the <i>long</i> story</a>, please.</p>\n<p>Next one.</p>",
    "Tom &amp; Jerry &copy; 10&nbsp;km caf&eacute; &lt;here&gt;",
    "<ul>\n  <li>One <code>x &lt; y</code> two\n  <li>Three<br>four <img src=a.png> five</ul>",
    "<h1>Hello, {name}!</h1><p>You have <b>%d</b> new <span translate=no>Foo Mail</span>.</p>",
    "<div>Half <b>bold</div><div>still bold</b> and not</div>",
    "<!-- a --><p>One<!-- b --> two <em><strong>three</strong></em></p><script>if (a < b) {}</script>",
    "<table><tr><td>12</td><td><i></i>A <u>b</u> <s>c</s> d.</td></tr></table><pre>kept <b>as is</b></pre>",
    "<p><b>All of it is <i>bold</i> here.</b></p>",
    "<p>  Spaces   <b> inside </b> and<wbr>out  </p>",
]
XML = [
    '<?xml version="1.0"?>\n<d><t>A title</t><p>The <b>quick <i>brown</i></b> fox &amp; <x/> hound.</p><!-- c --></d>',
    '<d>Text &unknown; <a k="v">link</a> <![CDATA[ <z> ]]> <c translate="no">kept <b/></c> %(n)s end</d>'.replace(
        "&unknown;", "&#169;"
    ),
]
WORDS = ["Haus", "und", "<b>", "&", "der", ",", ".", "rot", "(", "{name}", "</p>"]


def random_translation(text: str, seed: int) -> AlignedText:
    """Returns a translation of random words with random links."""
    rng = random.Random(seed)
    target = "".join(rng.choice(WORDS) + rng.choice([" ", " ", ""]) for _ in range(rng.randrange(12))).strip()
    sources = units(text) or [(0, 0)]
    return AlignedText(target, tuple((*unit, *rng.choice(sources)) for unit in units(target) if rng.random() < 0.9))


def identity(text: str) -> AlignedText:
    return AlignedText(text, tuple((*unit, *unit) for unit in units(text)))


class Tags(HTMLParser):
    """Collects everything except text, and end tags that close nothing."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self.found: list[str | None] = []
        self.opened: list[str] = []
        self.misnested = 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.found.append(self.get_starttag_text())
        if tag not in ("br", "img", "wbr", "li"):
            self.opened.append(tag)

    def handle_endtag(self, tag):
        self.found.append(f"</{tag}>")
        if self.opened and self.opened[-1] == tag:
            self.opened.pop()
        else:
            self.misnested += 1

    def handle_comment(self, data):
        self.found.append(data)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(HTML), st.integers(0, 10**6))
def test_html_keeps_its_tags(document, seed):
    parsed = MarkedDocument.parsed(document, "html", "in.html")
    out = parsed.filled([random_translation(segment.text, seed + n) for n, segment in enumerate(parsed.segments)])
    before, after = Tags(document), Tags(out)
    assert sorted(after.found) == sorted(before.found)
    assert after.misnested == before.misnested and sorted(after.opened) == sorted(before.opened)
    for once in ("{name}", "%d", "&nbsp;", "&copy;", "<code>x &lt; y</code>", "<pre>kept <b>as is</b></pre>"):
        assert out.count(once) == document.count(once)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(XML), st.integers(0, 10**6))
def test_xml_stays_well_formed(document, seed):
    parsed = MarkedDocument.parsed(document, "xml", "in.xml")
    out = parsed.filled([random_translation(segment.text, seed + n) for n, segment in enumerate(parsed.segments)])
    before, after = (xml.etree.ElementTree.fromstring(text) for text in (document, out))
    assert sorted(each.tag for each in after.iter()) == sorted(each.tag for each in before.iter())
    tags = re.compile(r"</?[a-z][^>]*>|<!.*?>|%\(n\)s")
    assert sorted(tags.findall(out.replace("<!-- c -->", ""))) == sorted(
        tags.findall(document.replace("<!-- c -->", ""))
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_placeholders_come_once_each(seed):
    line = "Hello {name}, %s of %(total)d at {{place}} and ${price} for 5%%: %1$s."
    parsed = MarkedDocument.parsed(line, "placeholders", "in")
    out = parsed.filled([random_translation(segment.text, seed) for segment in parsed.segments])
    for once in ("{name}", "%s", "%(total)d", "{{place}}", "${price}", "%%", "%1$s"):
        assert out.count(once) == 1, out


@pytest.mark.parametrize(("documents", "markup"), [(HTML, "html"), (XML, "xml")])
def test_an_identical_translation_gives_the_same_document(documents, markup):
    for document in documents:
        parsed = MarkedDocument.parsed(document, markup, "in")
        assert parsed.filled([identity(segment.text) for segment in parsed.segments]) == document
    line = "Hello {name}, you have %d new messages (see %s)."
    parsed = MarkedDocument.parsed(line, "placeholders", "in")
    assert parsed.filled([identity(segment.text) for segment in parsed.segments]) == line
    assert [segment.text for segment in parsed.segments] == ["Hello, you have new messages (see)."]


@pytest.mark.parametrize(("text", "markup"), [("file{number}name", "placeholders"), ("file&unknown;name", "html")])
def test_a_placeholder_or_unknown_entity_between_words_separates_them(text, markup):
    (segment,) = MarkedDocument.parsed(text, markup, "in").segments
    assert segment.text == "file name"


@pytest.mark.parametrize(
    "line", ["Progress: %d%% done.", "Total: {n}{unit} a day", "Total: {n} {unit}", "See {a} {b}{c}."]
)
def test_adjacent_placeholders_stay_adjacent(line):
    parsed = MarkedDocument.parsed(line, "placeholders", "in")
    assert parsed.filled([identity(segment.text) for segment in parsed.segments]) == line


@pytest.mark.parametrize(
    "document",
    [
        '<p>私は<a href="x">東京</a>に住んでいます。</p>',
        "<p>我<b>喜欢</b>你。</p>",
        "<p>Prix\u202f: <b>10\u202f000</b>\xa0€ et plus</p>",
        '<p><a id="x"></a>Heading</p>',
        '<p><i class="fa"></i>Home</p>',
    ],
)
def test_an_identical_translation_keeps_blanks_and_the_words_of_elements(document):
    parsed = MarkedDocument.parsed(document, "html", "in")
    assert parsed.filled([identity(segment.text) for segment in parsed.segments]) == document


@pytest.mark.parametrize("declaration", ["", '<?xml version="1.0"?>', '<?xml version="1.0"?>\n', "<!-- c -->\n"])
@pytest.mark.parametrize("doctype", ["html", 'd [\n<!ENTITY foo "bar"><!-- d -->\n]', 'd SYSTEM "d.dtd"'])
def test_the_document_type_is_kept(declaration, doctype):
    document = f"{declaration}<!DOCTYPE {doctype}>\n<d><p>A <b>dog</b>.</p></d>\n"
    parsed = MarkedDocument.parsed(document, "xml", "in.xml")
    assert [segment.text for segment in parsed.segments] == ["A dog."]
    assert parsed.filled([identity(segment.text) for segment in parsed.segments]) == document


@pytest.mark.parametrize("word", ["3 %-enheter", "3 %-poeng"])
def test_percent_signs_before_hyphens_are_no_placeholders(word):
    parsed = MarkedDocument.parsed(f"Det är {word} och %-10s, %-5.2f, %-*s, %0-5d, %+d.", "placeholders", "in")
    (segment,) = parsed.segments
    assert segment.text.startswith(f"Det är {word} och")
    assert [mark.raw for mark in segment.marks] == ["%-10s", "%-5.2f", "%-*s", "%0-5d", "%+d"]


def test_percent_signs_behind_numbers_are_no_placeholders():
    line = "Eine 10%ige Lösung ist 100%ig sicher, {name}, zu %d%% oder 100%%."
    parsed = MarkedDocument.parsed(line, "placeholders", "in")
    assert [segment.text for segment in parsed.segments] == ["Eine 10%ige Lösung ist 100%ig sicher,, zu oder 100."]
    assert parsed.filled([identity(segment.text) for segment in parsed.segments]) == line
    parsed = MarkedDocument.parsed("<p>A 10% solution.</p>", "html", "in")
    assert parsed.filled([AlignedText("Eine 10%ige Lösung.", ())]) == "<p>Eine 10%ige Lösung.</p>"


def test_letters_that_are_written_as_entities_are_translated():
    parsed = MarkedDocument.parsed("<p>&#1055;&#1088;&#x438;!</p><p>&copy; &#169;</p>", "html", "in")
    assert [segment.text for segment in parsed.segments] == ["При!"]


def test_words_that_move_take_their_tags_along():
    parsed = MarkedDocument.parsed("<p>I have <b>seen</b> the <i>dog</i>, {name}.</p>", "html", "in")
    (segment,) = parsed.segments
    sources = units(segment.text)
    target = "Ich habe den Hund gesehen, ."
    order = [0, 1, 3, 4, 2, 5, 6]
    links = tuple((*unit, *sources[place]) for unit, place in zip(units(target), order, strict=True))
    out = parsed.filled([AlignedText(target, links)])
    assert out.startswith("<p>Ich habe den <i>Hund</i> <b>gesehen</b>, {name}")


def test_lines_of_segments_are_known():
    parsed = MarkedDocument.parsed("<p>\n\nOne</p>\n<p>Two\n<b>x</b></p><p>Three</p>", "html", "in")
    assert [(segment.text, segment.line) for segment in parsed.segments] == [("One", 3), ("Two x", 4), ("Three", 5)]


def test_deep_nesting_is_cut_at_where_it_gets_too_deep():
    inner = "<i>" * 3000 + "one <b>two</b>" + "</i>" * 3000
    document = f"<p><u>before {inner}</u></p>"
    parsed = MarkedDocument.parsed(document, "html", "in")
    assert "one two" not in [segment.text for segment in parsed.segments]
    out = parsed.filled([random_translation(segment.text, seed) for seed, segment in enumerate(parsed.segments)])
    before, after = Tags(document), Tags(out)
    assert after.found == before.found and not after.misnested and not after.opened


class Counted(list):
    """A list that counts the accesses to each element."""

    reads = 0

    def __getitem__(self, place):
        self.reads += 1
        return super().__getitem__(place)


def test_a_sentence_of_many_elements_takes_no_more_than_each_of_them_times_its_length():
    """A search for the best range among all pairs of ends took a minute for 4,096 bytes."""
    document = " ".join(f"w <b>a{number}</b>" for number in range(200))
    (segment,) = MarkedDocument.parsed(document, "html", "in").segments
    counted_units = Counted(placing._units(segment, identity(segment.text)))
    places = placing._places(segment.marks, counted_units, (0, len(counted_units)), (0, len(counted_units)))
    assert [(place.start, place.end) for place in places] == [(place, place + 1) for place in range(1, 400, 2)]
    assert counted_units.reads <= 200 * 400


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(-1, 5), st.sampled_from("a.")), max_size=9), st.integers(0, 5), st.data())
def test_an_elements_range_is_the_best_of_all(units_, first, data):
    placed_units = [placing._Unit(text, source, " ") for source, text in units_]
    mark = placing.Mark("<b>", "</b>", first, data.draw(st.integers(first + 1, 6)))
    is_free = [data.draw(st.booleans()) for _ in placed_units]

    def total(span):
        weights = [1.0 if unit.text == "a" else 0.5 for unit in placed_units[slice(*span)]]
        signs = [1 if mark.start <= unit.source < mark.end else -1 for unit in placed_units[slice(*span)]]
        return sum(weight * sign for weight, sign in zip(weights, signs, strict=True))

    spans = [(a, b) for a in range(len(placed_units)) for b in range(a + 1, len(placed_units) + 1) if all(is_free[a:b])]
    best = max(spans, key=total, default=(0, 0))  # the first of the best
    range_units = placing._RangeUnits(placed_units, (0, len(placed_units)))
    for place in (place for place, free in enumerate(is_free) if not free):
        range_units.take(place, place + 1)
    assert range_units.span(mark, is_weak=False) == (best if total(best) > 0 else (0, 0))


def segment_of(text: str) -> Segment:
    places = enumerate(units(text))
    return Segment(text, [], [SourceUnit(start, end, word, text[start:end]) for word, (start, end) in places])


def slowly_linked(source, translation):
    """Returns the source unit of each unit of the translation: the one with most characters, summed over all links."""
    sources = units(source)
    for start, end in units(translation.text):
        weights = [0] * len(sources)
        for target_start, target_end, source_start, source_end in translation.links:
            shared = max(0, min(end, target_end) - max(start, target_start))
            for number, unit in enumerate(sources):
                weights[number] += shared * max(0, min(unit[1], source_end) - max(unit[0], source_start))
        best = max(weights, default=0)
        yield weights.index(best) if best else -1


@settings(max_examples=300, deadline=None)
@given(st.text("ab. ", max_size=12), st.text("ab. {}", max_size=12), st.data())
def test_units_are_linked_as_by_the_whole_sum(source, text, data):
    ranges = [st.tuples(st.integers(0, 12), st.integers(0, 12)).map(sorted) for _ in range(2)]
    links = data.draw(st.lists(st.tuples(*ranges).map(lambda pair: (*pair[0], *pair[1])), max_size=6))
    translation = AlignedText(text, tuple(links))
    sources = placing.aligned_sources(translation.links, units(text), units(source))
    assert sources == list(slowly_linked(source, translation))


def test_thousands_of_units_are_not_compared_with_each_other(monkeypatch):
    """A sentence can have 4,096 characters, and a request waits for its tags."""
    calls = []
    overlaps = placing._overlaps
    monkeypatch.setattr(
        placing, "_overlaps", lambda places, *span: calls.extend(actual := [*overlaps(places, *span)]) or actual
    )
    text = "<br/>" * 800
    assert len(placing._units(segment_of(text), identity(text))) > 3000
    assert len(calls) < 3 * len(text)


def count_executed_lines(function, *arguments) -> int:
    """Counts the lines of `placing` that a call executes, including each iteration of loops."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        count += event == "line"
        return trace if frame.f_code.co_filename == placing.__file__ else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function(*arguments)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("is_linked", [True, False])
def test_thousands_of_placeholders_are_not_compared_with_all_units(is_linked):
    counts = []
    for number in (100, 200, 400):
        (segment,) = segments([Part("text", "%sa " * number)])
        translation = identity(segment.text) if is_linked else AlignedText(segment.text, ())
        assert placing.placed(segment, translation).count("%s") == number
        counts.append(count_executed_lines(placing.placed, segment, translation))
    assert counts[2] - counts[1] < 2.2 * (counts[1] - counts[0])
