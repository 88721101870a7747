"""Documents split into parts."""

import pytest

from t2t_keras.errors import InputError
from t2t_keras.text.markup.reading import html_parts, xml_parts

HTML = """<!DOCTYPE html><p id=1>A <b>dog</b> &amp; a&nbsp;cat<br>
<code>x <b>y</b></code><!-- a --> <span translate="no">Foo</span> <script>if (a < b) {}</script> x < y & z"""
XML = """<?xml version="1.0"?><!DOCTYPE d [<!ENTITY foo "bar">]>
<d><t>Title</t><p>Hé &foo; <b>x</b><c/> <![CDATA[ <z> ]]> <x translate="no"><y/>z</x></p><!-- c --></d>
"""


def kinds(parts):
    return [(part.kind, part.raw, part.is_inline) for part in parts]


def test_html():
    parts = html_parts(HTML)
    assert "".join(part.raw for part in parts) == HTML
    assert ("whole", "<code>x <b>y</b></code>", True) in kinds(parts)
    assert ("whole", '<span translate="no">Foo</span>', True) in kinds(parts)
    assert ("whole", "<script>if (a < b) {}</script>", False) in kinds(parts)
    assert ("start", "<p id=1>", False) in kinds(parts) and ("text", " &amp; a&nbsp;cat", True) in kinds(parts)


@pytest.mark.parametrize(
    "odd", ["<![x]>", "<![foo[bar]]>", "<![1]>", "<![>", "</>", "&A", "<![CDATA[ a > b ]]>", "<![CDATA[a"]
)
@pytest.mark.parametrize("before", ["", "<p>A dog.</p>"])
def test_invalid_html_is_kept(before, odd):
    document = f"{before}{odd}<p>A cat.</p>"
    parts = html_parts(document)
    assert "".join(part.raw for part in parts) == document
    assert ("start", "<p>", False) in kinds(parts) or "CDATA[a" in odd


def test_code_of_php_may_contain_the_end_of_a_tag():
    code = ["<?php if ($a > 1): ?>", "<?= $user->name ?>"]
    parts = html_parts(f"<p>A {code[0]}dog {code[1]}</p><?xml a>b<?php c")
    assert [part.raw for part in parts if part.kind == "whole"] == [*code, "<?xml a>"]
    assert [part.raw for part in parts if part.kind == "text"] == ["A ", "dog ", "b<?php c"]


def test_unclosed_elements():
    parts = html_parts("<ul><li translate=no>X<li>Yes</ul><p>Rest</p><pre>a <b>b</b>")
    assert [part.raw for part in parts if part.kind == "text"] == ["Yes", "Rest"]
    assert [part.raw for part in parts if part.kind == "whole"] == ["<li translate=no>X", "<pre>a <b>b</b>"]


def test_an_empty_document():
    assert html_parts("") == []


def test_xml():
    parts = xml_parts(XML, "in.xml")
    assert "".join(part.raw for part in parts) == XML
    assert ("start", "<t>", False) in kinds(parts) and ("start", "<b>", True) in kinds(parts)
    assert ("whole", "<![CDATA[ <z> ]]>", True) in kinds(parts) and ("whole", "<c/>", True) in kinds(parts)
    assert ("whole", '<x translate="no"><y/>z</x>', True) in kinds(parts)
    with pytest.raises(InputError, match="^in.xml, line 2: not well-formed XML: mismatched tag"):
        xml_parts("<a>\n<b></a>", "in.xml")
