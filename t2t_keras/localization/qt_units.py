"""Qt's .ts files: translations are marked as unfinished."""

from t2t_keras.localization import xml_elements
from t2t_keras.localization.units import Edit, Options, Style, Unit
from t2t_keras.localization.xml_elements import Element

_STYLE = Style(accelerators="&", numbers_arguments=True)
_REMOVED = ("obsolete", "vanished")


def qt_units(text: str, options: Options) -> list[Unit]:
    """Returns the units of a .ts file: each message that is still in the program, with one unit per plural form."""
    root = xml_elements.root_element(text, "TS")
    messages = [message for message in root.all("message") if message.child("source")]
    num_forms = max((len(list(message.all("numerusform"))) for message in messages), default=0) or 2
    units = []
    for message in messages:
        translation = message.child("translation")
        has_variants = translation is not None and any(translation.all("lengthvariant"))
        if has_variants or (translation and translation.attributes.get("type") in _REMOVED):
            continue
        if message.attributes.get("numerus") == "yes":
            units += [_unit(text, message, translation, form, num_forms) for form in range(num_forms)]
        else:
            units.append(_unit(text, message, translation))
    return units


def _unit(text: str, message: Element, translation: Element | None, form: int = -1, num_forms: int = 0) -> Unit:
    """Returns the unit of a message, or of one of its plural forms.

    Args:
        text: the file.
        message: the message.
        translation: its translation, if it has one.
        form: index of the plural form; -1 if the message has no plural forms.
        num_forms: number of plural forms.
    """
    source, forms = message.child("source"), translation.children if translation else []
    assert source
    holder = (forms[form] if form < len(forms) else None) if form >= 0 else translation
    existing = text[holder.inner : holder.inner_end] if holder else ""

    def edits(content: str) -> list[Edit]:
        if form < 0:
            if translation:
                return [xml_elements.content_edit(text, translation, content, "type", "unfinished")]
            indent = xml_elements.indentation(text, source.start)
            new = f'{indent}<translation type="unfinished">{content}</translation>'
            return [Edit(source.end, source.end, new)]
        filled = f"<numerusform>{content}</numerusform>"
        if translation and holder:
            mark = xml_elements.attribute_edit(text, translation, "type", "unfinished")
            return [mark, Edit(holder.start, holder.end, filled)]
        # Several forms that are missing are written in order, the first with the start tag and the last with the end.
        place = translation.inner_end if translation and forms else translation.end if translation else source.end
        if translation and forms:
            return [xml_elements.attribute_edit(text, translation, "type", "unfinished"), Edit(place, place, filled)]
        opening = '<translation type="unfinished">' if form == 0 else ""
        closing = "</translation>" if form == num_forms - 1 else ""
        removal = [Edit(translation.start, translation.end, "")] if translation else []
        return [*removal, Edit(place, place, f"{opening}{filled}{closing}")]

    comments = [message.child(name) for name in ("comment", "extracomment", "translatorcomment")]
    return Unit(
        xml_elements.content_parts(text, source, frozenset()),
        source.start,
        edits,
        existing,
        bool(existing.strip()),
        note="\n".join(text[comment.inner : comment.inner_end] for comment in comments if comment),
        style=_STYLE,
        escape=xml_elements.Escape(text[source.inner : source.inner_end]),
    )
