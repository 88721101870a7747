"""A small file of each format, as common programs write it."""

SAMPLES = {
    ".po": r"""# German translations.
msgid ""
msgstr ""
"Language: de\n"
"Content-Type: text/plain; charset=UTF-8\n"
"Content-Transfer-Encoding: 8bit\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

#. A note.
#: a.c:1
msgid "A dog runs."
msgstr ""

#, c-format
msgid "Copied %s to %d places in the <b>big folder</b>, which you will find below the other folder.\n"
msgstr ""

#, c-format
msgid "%d dog"
msgid_plural "%d dogs"
msgstr[0] ""
msgstr[1] ""

#| msgid "_Old"
msgctxt "menu"
msgid "Save _As"
msgstr ""

msgid "Cat"
msgstr "Katze"

#~ msgid "gone"
#~ msgstr "weg"
""",
    ".xliff": r"""<?xml version="1.0" encoding="UTF-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
  <file original="a.html" source-language="en" target-language="de" datatype="html">
    <body>
      <trans-unit id="1">
        <source>A <g id="1">big dog</g> runs<x id="2"/>.</source>
        <note>about dogs</note>
      </trans-unit>
      <trans-unit id="2" approved="yes">
        <source>Cat</source>
        <target state="translated">Katze</target>
      </trans-unit>
      <trans-unit id="3" translate="no"><source>No</source></trans-unit>
    </body>
  </file>
</xliff>
""",
    ".xlf": r"""<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en">
 <file id="f1">
  <unit id="1">
   <notes><note>n</note></notes>
   <segment>
    <source>Hello <pc id="1">big <ph id="2"/>world</pc>!</source>
   </segment>
  </unit>
 </file>
</xliff>
""",
    ".tmx": r"""<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4">
  <header creationtool="x" creationtoolversion="1" segtype="sentence" o-tmf="x" adminlang="en" srclang="en"
          datatype="plaintext"/>
  <body>
    <tu>
      <tuv xml:lang="en-US">
        <seg>A <bpt i="1">&lt;b></bpt>dog<ept i="1">&lt;/b></ept> &amp; cat.</seg>
      </tuv>
    </tu>
    <tu><tuv xml:lang="en"><seg>Cat</seg></tuv><tuv xml:lang="de"><seg>Katze</seg></tuv></tu>
  </body>
</tmx>
""",
    ".ts": r"""<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de_DE" sourcelanguage="en">
<context>
    <name>MainWindow</name>
    <message>
        <location filename="main.cpp" line="12"/>
        <source>&amp;Open file</source>
        <comment>menu</comment>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>E&amp;xit %1 &quot;now&quot;</source>
        <translation type="unfinished"/>
    </message>
    <message numerus="yes">
        <source>%n dog(s)</source>
        <translation type="unfinished">
            <numerusform></numerusform>
            <numerusform></numerusform>
        </translation>
    </message>
    <message>
        <source>Done</source>
        <translation>Fertig</translation>
    </message>
    <message>
        <source>&lt;b&gt;Bold&lt;/b&gt; dog</source>
    </message>
</context>
</TS>
""",
    ".srt": r"""1
00:00:01,000 --> 00:00:02,500
<i>Two dogs are running
through the snow.</i>

2
00:00:03,000 --> 00:00:04,000
- Where are you?
- Here, <b>I am</b>.

3
00:00:05,000 --> 00:00:06,000
♪ La la la ♪

""",
    ".vtt": r"""WEBVTT

NOTE a --> b

STYLE
::cue {}

intro
00:01.000 --> 00:02.000 align:start
<v Bob>A dog <c.red>really</c> runs &amp; barks.

""",
    ".csv": r"""id,source,target
1,A dog,
2,"A ""big"" dog, here",
3,Cat,Katze
""",
    ".json": r"""{
  "title": "A \"dog\"\/cat",
  "items": ["one", {"b": "Hello {{name}}"}],
  "n": 3, "@title": {"description": "x"}
}
""",
    ".yaml": r"""# comment
en:
  hello: Hello %{name}  # c
  quoted: "A \"big\" dog"
  single: 'It''s a dog'
  list: [one dog, "two dogs"]
  block: |-
    A line of text.

    Second paragraph.
  folded: >
    A folded text that
    continues here.
  num: 3
  anchor: &x A dog
  alias: *x
""",
    ".properties": r"""# note
title = A dog
msg=It''s {0} dogs \
    and cats
u=Gr\u00fc\u00dfe: "x"
empty=
""",
    ".strings": r"""/* Note */
"a.key" = "Copied %@ to %@ \"now\"\n";
// x
"b" = "Dog";
""",
    ".md": r"""---
title: Not translated
---

# Dog *breeds* with `code`

A **big dog** runs over [the lawn](https://x.org "Title"), see
[Reference] and ![picture](a.png) with 5 \* 3. It is a very long
paragraph that continues <kbd>Ctrl</kbd> here.  
A hard break.

> - [ ] a task_name here
>   continues here

| Name | Use \| case |
|------|-----|
| dog  | `a\|b` barks |

<div>html block</div>

```
code
```

[Reference]: http://r.org
""",
}
