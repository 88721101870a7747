"""TMX: translation memories, which get a variant in the language of the translations."""

from t2t_keras.localization import xml_elements
from t2t_keras.localization.units import Edit, Options, Unit, error_at
from t2t_keras.localization.xml_elements import Element
from t2t_keras.text.languages import base_language

_CODES = frozenset(("bpt", "ept", "it", "ph", "ut"))
_MARK = ("creationtool", "t2t_keras")


def tmx_units(text: str, options: Options) -> list[Unit]:
    """Returns the units of a TMX file, each a `tu` with a variant in the source language.

    The source language is `options.source_language` or, if no unit has it, the `srclang` of the header. A language also
    matches its regional variants.

    Raises:
        InputError: the file is not well-formed, or no unit has the source language; names the languages of the file.
    """
    root = xml_elements.root_element(text, "tmx")
    header = root.child("header")
    units = list(root.all("tu"))
    wanted = [options.source_language, header.attributes.get("srclang", "") if header else ""]
    for language in wanted:
        pairs = [(unit, source) for unit in units if (source := _variant(unit, language))]
        if pairs:
            return [_unit(text, unit, source, options) for unit, source in pairs]
    if not units:
        return []
    languages = sorted({_language(variant) for unit in units for variant in unit.all("tuv")})
    raise error_at(
        text, root.start, f"no unit has the model's source language {wanted[0]!r}; languages: {', '.join(languages)}"
    )


def _language(variant: Element) -> str:
    return variant.attributes.get("xml:lang") or variant.attributes.get("lang", "")


def _variant(unit: Element, language: str) -> Element | None:
    """Returns the variant in a language, preferably with the same region, if it has a segment."""
    variants = [variant for variant in unit.all("tuv") if variant.child("seg")]
    same = [
        each for each in variants if _language(each).lower().replace("_", "-") == language.lower().replace("_", "-")
    ]
    related = [each for each in variants if base_language(_language(each)) == base_language(language)]
    return next(iter([*same, *related]), None)


def _unit(text: str, unit: Element, source: Element, options: Options) -> Unit:
    target = _variant(unit, options.target_language)
    segment, existing = source.child("seg"), target.child("seg") if target else None
    assert segment

    def edits(content: str) -> list[Edit]:
        if target and existing:
            filled = Edit(existing.start, existing.end, f"<{existing.tag}>{content}</{existing.tag}>")
            return [xml_elements.attribute_edit(text, target, *_MARK), filled]
        name, language = "xml:lang" if "xml:lang" in source.attributes else "lang", options.target_language
        indent = xml_elements.indentation(text, source.start)
        inner, end = (xml_elements.indentation(text, place) for place in (segment.start, source.inner_end))
        start_tag = f'<tuv {name}="{language}" {_MARK[0]}="{_MARK[1]}">'
        return [Edit(source.end, source.end, f"{indent}{start_tag}{inner}<seg>{content}</seg>{end}</tuv>")]

    target_text = text[existing.inner : existing.inner_end] if existing else ""
    return Unit(
        xml_elements.content_parts(text, segment, _CODES),
        segment.start,
        edits,
        target_text,
        bool(target_text.strip()),
        note="\n".join(text[note.inner : note.inner_end] for note in unit.all("note")),
        escape=xml_elements.Escape(text[segment.inner : segment.inner_end]),
    )
