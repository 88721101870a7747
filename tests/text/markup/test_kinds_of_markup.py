"""The text that a model reads for many kinds of markup, and the position of the markup in the translation."""

from unittest.mock import Mock

import pytest

from t2t_keras.errors import InputError
from t2t_keras.text.markup import braces
from t2t_keras.text.markup.documents import MarkedDocument
from t2t_keras.text.markup.placing import AlignedText
from t2t_keras.text.words import units

ALIKE = [  # documents and the texts of their segments
    # Adjacent elements.
    ("<p>More than 10<sup>6</sup> dogs</p>", ["More than 10 dogs"]),
    ("<p>More than 10<SUP>6</SUP>dogs</p>", ["More than 10 dogs"]),
    ("<p>H<sub>2</sub>O and C<sub>6</sub>H<sub>12</sub></p>", ["H O and C H"]),
    ("<p>Dogs<sup>1</sup>, cats<sup><a href=#b>2</a></sup>.</p>", ["Dogs, cats."]),
    ("<p>See dogs.<sup>1</sup> The cat.<sup>&dagger;</sup></p>", ["See dogs. The cat."]),
    ("<p>Dogs<sup>a</sup>, cats.<sup>b</sup> The <i>D.</i><b>E</b></p>", ["Dogs a, cats. b The D. E"]),
    ("<p>x<sup>n</sup>, M<sup>me</sup> A<sup></sup>B</p>", ["x n, M me A B"]),
    ("<p>the 21<sup>st</sup> century</p>", ["the 21st century"]),
    ("<p>20 km<sup>2</sup>, and</p>", ["20 km, and"]),
    ("<p><span>Home</span><span>About</span></p>", ["Home About"]),
    ("<p>A <b>dog</b><i>cat</i> and</p>", ["A dog cat and"]),
    ("<p>A <b>dog</b><!-- x --><i>cat</i></p>", ["A dog cat"]),
    ("<p>A <b>dog</b>, <i>cat</i></p>", ["A dog, cat"]),
    ("<p>A dog<img src=x>cat<input>mouse</p>", ["A dog cat mouse"]),
    ("<p>A dog<code>x</code>cat</p>", ["A dog cat"]),
    ("<nav><a href=1>Home</a><a href=2>About us</a></nav>", ["Home", "About us"]),
    ("<nav><a>Home</a> | <a>About <b>us</b></a>\n<a><img></a></nav>", ["Home", "About us"]),
    ("<p><a>Home</a> is <a>here</a></p>", ["Home is here"]),
    ("<ul><li>One<li>Two</ul><td>a</td><td>b</td>", ["One", "Two", "a", "b"]),
    ("<ul><li translate=no>One<ul><li>Two</ul></ul><p>Three</p>", ["Three"]),
    ("<p>One<br>Two<BR/>Three<hr>Four</p>", ["One", "Two", "Three", "Four"]),
    # Marks within words.
    ("<p>a <b>dog</b>s <i>D</i>rop un<u>believ</u>able</p>", ["a dogs Drop unbelievable"]),
    ("<p>super<wbr>cali<WBR/>fragil</p>", ["supercalifragil"]),
    ("<p>dog<!-- x -->house <!-- y --> a<!---->b</p>", ["doghouse ab"]),
    ("<p>do<a id=x></a>g</p>", ["dog"]),
    # Entities and format characters.
    ("a very soft&shy;hyphen word", ["a very softhyphen word"]),
    ("a very soft\u00adhyphen&#173; &shy;word", ["a very softhyphen word"]),
    ("a zero&#8203;width &#x200B; space&ZeroWidthSpace;", ["a zerowidth space"]),
    ("a\u200bb c &#x2060; d\ufeff", ["ab c d"]),
    ("می&zwnj;خواهم نمی\u200cدانم &#8205;", ["می\u200cخواهم نمی\u200cدانم \u200d"]),
    ("a &zwj;dog &#x200e;left\u200fright", ["a \u200ddog leftright"]),
    ("5&nbsp;km caf&eacute; cafe&#769; &lt;x&gt;", ["5 km café cafe\u0301 <x>"]),
    ("R&D AT&ampT &eacute; &copy 2020", ["R&D AT&ampT é 2020"]),
    ("a&#32;dog&Tab;and&#10;cat", ["a dog and cat"]),
    ("<p>C&#D <b>dog</b> and &#x</p><p>cat <b", ["C&#D dog and &#x", "cat <b"]),
    ("👨\u200d👩\u200d👧 family &#x1F1E9;", ["👨\u200d👩\u200d👧 family"]),
    # Text that is not translated.
    ('<p class="notranslate">A</p><p class="a notranslate b">B</p><p class=notranslated>C</p>', ["C"]),
    ("<p class='a\nnotranslate'>A</p><P CLASS=notranslate>B</P><p class>C</p>", ["C"]),
    ("<p translate=NO>A</p><p TRANSLATE='No'>B</p><p translate=false>C</p><p translate='no '>D</p>", ["C", "D"]),
    ("<p translate=no translate=yes>A</p><p translate=yes translate=no>B</p>", ["B"]),
    ("<div translate=no>A<p translate=YES>B<i translate=no>C</i></p><p translate>D</p>E</div>", ["B", "D"]),
    ("<div class=notranslate>A <p translate=''>B</p> <br> C</div>D", ["B", "D"]),
    ("<p>Use <span translate=no>Foo <b translate=yes>dogs</b> Bar</span> now</p>", ["Use dogs now"]),
    ("<p>Use <span class=notranslate>Foo <b>Bar</b></span> now</p>", ["Use now"]),
    ("<ul><li translate=no>A<li>B</ul><p class=notranslate>C<p>D<div>E", ["B", "D", "E"]),
    ("<table><tr><td translate=no>A<td>B<tr><th>C</table>", ["B", "C"]),
    ("<dl><dt translate=no>A<dd>B</dl><select><option translate=no>C<option>D</select>", ["B", "D"]),
    ("<p translate=no>A<table><tr><td>B</table>C", ["B", "C"]),
    ("<b translate=no>A<p>B</b>C</p>", ["C"]),
    ("<p><code>A</p><p>B</code>C</p>", ["C"]),
    ("<div translate=no>A", []),
    ("<code translate=yes>A dog</code> <pre>B</pre> <samp>C</samp>", ["A dog"]),
    ("<script translate=yes>A</script><style>B</style><svg><title>C</title></svg>", []),
    ("<ruby>東京<rp>(</rp><rt>とうきょう</rt><rp>)</rp></ruby>で", ["東京で"]),
    ("<p>A <data value=1>dog</data> <output>runs</output> <nobr>so fast</nobr></p>", ["A dog runs so fast"]),
    # Placeholders in tags.
    ("<p>{n, plural, one {<b>#</b> dog} other {# <i>dogs</i> run}} here</p>", ["here", "dog", "dogs run"]),
    ("<p>Hello {{ user.name | upper }} and <b>{0}</b></p>", ["Hello and"]),
    ("<p>{n, plural, one {a<br>b} other {c}}</p><p>An open {brace</p><p>Go</p>", ["Go"]),
]
MESSAGES = [
    ("{n, plural, one {{name} has one dog} other {{name} has # dogs}}", ["has one dog", "has dogs"]),
    (
        "{a, select, x {{b, select, y {{c, plural, one {{d} dog} other {{{e}}}}} other {Y}}} other {X}}",
        ["dog", "Y", "X"],
    ),
    ("{n, selectordinal, one {#st dog} two {#nd dog} other {#th dog}}", ["st dog", "nd dog", "th dog"]),
    ("{ n , plural , offset:1 =0 {no dogs} =1{one}\tother\n{# of {n, number, integer}} }", ["no dogs", "one", "of"]),
    ("You have {n, plural, one {# dog} other {# dogs}} in {place}.", ["You have in.", "dog", "dogs"]),
    ("{g, select, male {his # dog} other {their # dog}}", ["his # dog", "their # dog"]),
    ("It''s '{'not'}' a {name}", ["It's not a"]),
    ("It's '{not}' a {name}, don't", ["It's a, don't"]),
    ("l'{name} n'est pas là", ["l' n'est pas là"]),
    ("{n, plural, one {it''s '{'#'}' '#' dog} other {l''{x} dogs}}", ["it's dog", "l' dogs"]),
    ("{n, plural, one {don't} other {'{' dogs}}", ["don't", "dogs"]),
    ("{total, number, ::currency/EUR} for {d, date, 'yyyy''}'} dogs", ["for dogs"]),
    ("{0, choice, 0#none|1#one|1<many} dogs", ["dogs"]),
    ("{n, plural} dogs {n, plural, one} cats {n, plural, one dog}", ["dogs cats"]),
    ("{{{{deep}}}} ${a} %{b} #{c} $t(d) {% if x %} dogs {% endif %} {}", ["$t(d) dogs"]),
    ("Dear {name, you have {n} dogs", []),
    ("Dear name}, you have dogs", []),
    ("{n, plural, one {a dog} other {dogs}", []),
    ("{{name} has dogs", []),
    ("Hello <%= user.name %>, <% if x %>dogs<% end %> {{#if a}}run{{/if}}", ["Hello, dogs run"]),
    (
        "{m, plural, =0 {just now} =1{one minute ago} other {{{m}} minutes ago}}",
        ["just now", "one minute ago", "minutes ago"],
    ),
    ("Press { to open it.", ["Press to open it."]),
    ("A dog :-} and a } cat", ["A dog :- and a cat"]),
    ("First line\nSecond {x}\r\n\n third", ["First line", "Second", "third"]),
]


def identity(text: str) -> AlignedText:
    return AlignedText(text, tuple((*unit, *unit) for unit in units(text)))


@pytest.mark.parametrize(("document", "texts"), ALIKE)
def test_html(document, texts):
    parsed = MarkedDocument.parsed(document, "html", "in")
    assert [segment.text for segment in parsed.segments] == texts
    assert parsed.filled([identity(text) for text in texts]) == document


@pytest.mark.parametrize(("document", "texts"), MESSAGES)
def test_messages(document, texts):
    parsed = MarkedDocument.parsed(document, "placeholders", "in")
    assert [segment.text for segment in parsed.segments] == texts
    assert parsed.filled([identity(text) for text in texts]) == document
    shouted = [AlignedText(text.upper(), identity(text).links) for text in texts]
    if texts and not any("#" in text for text in texts):
        frames = MarkedDocument.parsed(parsed.filled(shouted), "placeholders", "in")
        assert [segment.text for segment in frames.segments] == [text.upper() for text in texts]


@pytest.mark.parametrize(
    ("document", "texts"),
    [
        (
            '<d><p translate="NO">A</p><p its:translate="no" xmlns:its="i">B</p><p class="a notranslate">C</p><p>D</p>'
            "</d>",
            "D",
        ),
        ("<d><p>x 10<sup>6</sup> d<!-- c -->og</p></d>", ["x 10 dog"]),
        ("<d><p>Dogs<footnote>See</footnote>, <x:sup xmlns:x='x'>2</x:sup>cats</p></d>", ["Dogs See, cats"]),
        ("<d>A <list><item>One</item><item>Two</item></list></d>", ["A One Two"]),
        ('<d translate="no">A <p translate="yes">B&#173;b<![CDATA[ & {]]></p></d>', ["Bb"]),
        ("<d>{n, plural, one {<b>a</b> dog} other {dogs}}</d>", ["a dog", "dogs"]),
    ],
)
def test_xml(document, texts):
    parsed = MarkedDocument.parsed(document, "xml", "in")
    assert [segment.text for segment in parsed.segments] == list(texts)
    assert parsed.filled([identity(segment.text) for segment in parsed.segments]) == document


VISIBLE = ("alt", "title", "placeholder", "aria-label")


@pytest.mark.parametrize(
    ("document", "texts", "filled"),
    [
        ("<img alt='A dog' src=x>", ["A dog"], "<img alt='EIN HUND' src=x>"),
        ("<IMG ALT=dog SRC=dog>", ["dog"], '<IMG ALT="EIN HUND" SRC=dog>'),
        ('See <img alt="A &quot;b&quot;"/> x', ["See x", 'A "b"'], 'EIN HUND <img alt="EIN HUND"/>'),
        ('<p title="{n} dogs" lang=en>A</p>', ["A", "dogs"], '<p title="{n} EIN HUND" lang=en>EIN HUND</p>'),
        ("<p title=\"\" alt='12' title>1</p>", [], "<p title=\"\" alt='12' title>1</p>"),
        ('<textarea placeholder="Write">x</textarea>', ["Write"], '<textarea placeholder="EIN HUND">x</textarea>'),
        ('<button aria-label = "Close"><i title=x></i></button>', ["Close", "x"], None),
        ('<div translate=no title="A"><b title="B" translate=yes>C</b></div>', ["C", "B"], None),
        ('<img class=notranslate alt="A"><img translate=no alt="B">', [], None),
        ('<code title="A">B</code><svg aria-label="C"></svg><iframe title=D></iframe>', ["A", "C", "D"], None),
        ('<p data-alt="A" alternative="B" title="C > D">E</p>', ["E", "C > D"], None),
        ('{n, plural, one {<img alt="A">dog} other {x}}', ["A", "dog", "x"], None),
        ("<a title='It&#39;s'title=\"x\">", ["It's", "x"], None),
    ],
)
def test_attributes_on_request(document, texts, filled):
    parsed = MarkedDocument.parsed(document, "html", "in", VISIBLE)
    assert [segment.text for segment in parsed.segments] == texts
    assert parsed.filled([identity(text) for text in texts]) == document
    result = parsed.filled([AlignedText("EIN HUND", ()) for _ in texts])
    assert filled is None or result == filled
    without = MarkedDocument.parsed(document, "html", "in")
    assert not {segment.text for segment in without.segments} & ({"A", "B"} if "translate" in document else {"x y"})


def test_attributes_are_escaped():
    for quote, escaped in (("'", 'a &lt; &#x27;b&#x27; &amp; "c"'), ('"', "a &lt; 'b' &amp; &quot;c&quot;")):
        parsed = MarkedDocument.parsed(f"<x alt={quote}dog{quote}/>", "xml", "in", ["ALT"])
        assert parsed.filled([AlignedText("a < 'b' & \"c\"", ())]) == f"<x alt={quote}{escaped}{quote}/>"
    with pytest.raises(InputError, match="attributes"):
        MarkedDocument.parsed("a", "placeholders", "in", ["alt"])


@pytest.mark.parametrize(
    ("document", "target", "order", "result"),
    [
        # The source word of each word of the translation.
        (
            "<p>More than 10<sup>6</sup> dogs</p>",
            "Mehr als 10 Hunde",
            range(4),
            "<p>Mehr als 10<sup>6</sup> Hunde</p>",
        ),
        (
            "<p>Dogs<sup>1</sup>, a cat</p>",
            "Die Hunde, Katze",
            [0, 0, 1, 3],
            "<p>Die Hunde<sup>1</sup>, Katze</p>",
        ),
        ("<p>10<sup>6</sup> dogs</p>", "Hunde: 10", [1, 1, 0], "<p>Hunde: 10<sup>6</sup></p>"),
        (
            "<p>CO<sub>2</sub> is H<sub>2</sub>O</p>",
            "H O war CO",
            [2, 3, 1, 0],
            "<p>H<sub>2</sub>O war CO<sub>2</sub></p>",
        ),
        ("Dogs<sup>a</sup> and cats", "Die Hunde a, Katzen", [0, 0, 1, 2, 3], "Die Hunde<sup>a</sup>, Katzen"),
        ("a soft&shy;hyphen word", "ein softhyphen Wort", range(3), "ein soft&shy;hyphen Wort"),
        ("a soft&shy;hyphen word", "ein Trennzeichen hier", range(3), "ein Trennzeichen hier"),
        ("the <b>i</b>Phone\n  runs", "das iPhone läuft", range(3), "das <b>i</b>Phone\n  läuft"),
        ("super<wbr>man runs", "der superman rennt", [0, 0, 1], "der super<wbr>man rennt"),
        ("a <b>dog</b>s", "ein Hunde", range(2), "ein <b>Hunde</b>"),
        ("A {x} man &lt;", "Ein {y} Mann <", [0, 1, 1, 1, 1, 2], "Ein {x} Mann &lt;"),
        ("in 2020 &amp; <i>Berlin</i> x", "Berlin & 2020", [0, 0, 0], "<i>Berlin</i> &amp; 2020"),
    ],
)
def test_words_that_stay_keep_their_marks(document, target, order, result):
    parsed = MarkedDocument.parsed(document, "html", "in")
    (segment,) = parsed.segments
    sources = units(segment.text)
    links = tuple((*unit, *sources[place]) for unit, place in zip(units(target), order, strict=True))
    assert parsed.filled([AlignedText(target, links)]) == result


def test_apostrophes_do_not_repeat_the_search_for_the_style_of_an_argument(monkeypatch):
    """The style after a long word and a brace would be parsed again at each apostrophe."""
    styled = Mock(match=Mock(return_value=None))
    monkeypatch.setattr(braces, "_STYLED", styled)
    document = "{" + 100 * "a" + 100 * "' "
    assert MarkedDocument.parsed(document, "placeholders", "in").pieces == (document,)
    assert styled.match.call_count == 1


def test_apostrophes_do_not_quote_placeholders():
    parsed = MarkedDocument.parsed("{n, plural, one {of:{name}} other {''dogs'' of:{name}}}", "placeholders", "in")
    assert [segment.text for segment in parsed.segments] == ["of:", "'dogs' of:"]
    one = AlignedText("dell'", ((0, 4, 0, 2), (4, 5, 2, 3)))
    other = AlignedText("cani dell'", ((0, 4, 1, 5), (5, 9, 7, 9), (9, 10, 9, 10)))
    assert parsed.filled([one, other]) == "{n, plural, one {dell''{name}} other {cani dell''{name}}}"
