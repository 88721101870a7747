"""English names of languages by ISO 639 code."""

from collections.abc import Mapping

_LINES = """
af Afrikaans, am Amharic, ar Arabic, as Assamese, az Azerbaijani, be Belarusian, bg Bulgarian, bn Bengali, br Breton
bs Bosnian, ca Catalan, cs Czech, cy Welsh, da Danish, de German, el Greek, en English, eo Esperanto, es Spanish
et Estonian, eu Basque, fa Persian, fi Finnish, fo Faroese, fr French, fy Western Frisian, ga Irish, gd Scottish Gaelic
gl Galician, gu Gujarati, ha Hausa, he Hebrew, hi Hindi, hr Croatian, ht Haitian Creole, hu Hungarian, hy Armenian
id Indonesian, ig Igbo, is Icelandic, it Italian, ja Japanese, jv Javanese, ka Georgian, kk Kazakh, km Khmer, kn Kannada
ko Korean, ku Kurdish, ky Kyrgyz, la Latin, lb Luxembourgish, lo Lao, lt Lithuanian, lv Latvian, mg Malagasy, mi Maori
mk Macedonian, ml Malayalam, mn Mongolian, mr Marathi, ms Malay, mt Maltese, my Burmese, nb Norwegian Bokmål, ne Nepali
nl Dutch, nn Norwegian Nynorsk, no Norwegian, oc Occitan, om Oromo, or Odia, pa Punjabi, pl Polish, ps Pashto
pt Portuguese, qu Quechua, rm Romansh, ro Romanian, ru Russian, rw Kinyarwanda, sa Sanskrit, sd Sindhi, se Northern Sami
si Sinhala, sk Slovak, sl Slovenian, sm Samoan, so Somali, sq Albanian, sr Serbian, st Southern Sotho, su Sundanese
sv Swedish, sw Swahili, ta Tamil, te Telugu, tg Tajik, th Thai, ti Tigrinya, tk Turkmen, tl Tagalog, tn Tswana
tr Turkish, tt Tatar, ug Uyghur, uk Ukrainian, ur Urdu, uz Uzbek, vi Vietnamese, wo Wolof, xh Xhosa, yi Yiddish
yo Yoruba, zh Chinese, zu Zulu
"""

_NAMES: Mapping[str, str] = {
    code: name for entry in _LINES.strip().replace("\n", ", ").split(", ") for code, _, name in [entry.partition(" ")]
}


def language_name(code: str) -> str:
    """Returns the English name of a language, or its code if the name is unknown."""
    base, _, variant = code.replace("_", "-").partition("-")
    name = _NAMES.get(base.lower(), code)
    return f"{name} ({variant})" if variant and name != code else name
