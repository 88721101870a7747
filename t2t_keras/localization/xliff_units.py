"""XLIFF 1.2 and 2: translations are marked as not yet reviewed."""

from collections.abc import Iterator

from t2t_keras.localization import xml_elements
from t2t_keras.localization.units import Edit, Options, Style, Unit
from t2t_keras.localization.xml_elements import Element

_CODES = frozenset(("x", "bx", "ex", "ph", "bpt", "ept", "it", "sc", "ec", "cp", "sm", "em"))
_STYLE = Style(accelerators="&", numbers_arguments=True)
_UNTRANSLATED_STATES = ("new", "needs-translation", "initial")


def xliff_units(text: str, options: Options) -> list[Unit]:
    """Returns the units of an XLIFF file: each `trans-unit` (1.2) or `segment` (2) that may be translated."""
    root = xml_elements.root_element(text, "xliff")
    is_new = root.attributes.get("version", "").startswith("2")
    root_edits = []
    if is_new and "trgLang" not in root.attributes:  # version 2 requires it as soon as there is a translation
        root_edits.append(xml_elements.attribute_edit(text, root, "trgLang", options.target_language))
    return [
        _unit(text, element, is_new, root_edits, note)
        for element, note in _translatable(root, "segment" if is_new else "trans-unit", True, text)
        if element.child("source")
    ]


def _translatable(element: Element, name: str, is_translated: bool, text: str) -> Iterator[tuple[Element, str]]:
    """Yields the elements with a name that `translate="no"` does not exclude, each with its notes."""
    for child in element.children:
        is_wanted = {"yes": True, "no": False}.get(child.attributes.get("translate", ""), is_translated)
        if child.name == name:
            notes = [*element.all("note"), *child.all("note")] if name == "segment" else child.all("note")
            if is_wanted:
                yield child, "\n".join(text[note.inner : note.inner_end] for note in notes)
        else:
            yield from _translatable(child, name, is_wanted, text)


def _unit(text: str, element: Element, is_new: bool, root_edits: list[Edit], note: str) -> Unit:
    source, target = element.child("source"), element.child("target")
    assert source
    existing = text[target.inner : target.inner_end] if target else ""
    state = (element if is_new else target or element).attributes.get("state", "")

    def edits(content: str) -> list[Edit]:
        result = [*root_edits]
        if is_new:
            result.append(xml_elements.attribute_edit(text, element, "state", "translated"))
        elif element.attributes.get("approved") == "yes":
            result.append(xml_elements.attribute_edit(text, element, "approved", "no"))
        mark = "" if is_new else ' state="needs-review-translation"'
        if target is None:
            before = element.child("seg-source") or source
            name = f"{xml_elements.prefix(source)}target"
            new = f"{xml_elements.indentation(text, source.start)}<{name}{mark}>{content}</{name}>"
            return [*result, Edit(before.end, before.end, new)]
        if is_new:
            start = text[target.start : target.inner].replace("/>", ">")
            return [*result, Edit(target.start, target.end, f"{start}{content}</{target.tag}>")]
        return [*result, xml_elements.content_edit(text, target, content, "state", "needs-review-translation")]

    return Unit(
        xml_elements.content_parts(text, source, _CODES),
        source.start,
        edits,
        existing,
        bool(existing.strip()) and state not in _UNTRANSLATED_STATES,
        note=note,
        style=_STYLE,
        escape=xml_elements.Escape(text[source.inner : source.inner_end]),
    )
