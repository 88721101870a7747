"""Language codes: ISO 639-1 and 639-3, with scripts and regions, and how codes of the same language match."""

import re
from collections.abc import Iterable
from typing import NamedTuple

# ISO 639-1 codes with their codes in ISO 639-3 and, where it differs, the bibliographic code of ISO 639-2.
_THREE_LETTERS = """
aa aar|ab abk|ae ave|af afr|ak aka|am amh|an arg|ar ara|as asm|av ava|ay aym|az aze|ba bak|be bel|bg bul|bi bis|bm bam
bn ben|bo bod tib|br bre|bs bos|ca cat|ce che|ch cha|co cos|cr cre|cs ces cze|cu chu|cv chv|cy cym wel|da dan|de deu ger
dv div|dz dzo|ee ewe|el ell gre|en eng|eo epo|es spa|et est|eu eus baq|fa fas per|ff ful|fi fin|fj fij|fo fao|fr fra fre
fy fry|ga gle|gd gla|gl glg|gn grn|gu guj|gv glv|ha hau|he heb|hi hin|ho hmo|hr hrv|ht hat|hu hun|hy hye arm|hz her
ia ina|id ind|ie ile|ig ibo|ii iii|ik ipk|io ido|is isl ice|it ita|iu iku|ja jpn|jv jav|ka kat geo|kg kon|ki kik|kj kua
kk kaz|kl kal|km khm|kn kan|ko kor|kr kau|ks kas|ku kur|kv kom|kw cor|ky kir|la lat|lb ltz|lg lug|li lim|ln lin|lo lao
lt lit|lu lub|lv lav|mg mlg|mh mah|mi mri mao|mk mkd mac|ml mal|mn mon|mr mar|ms msa may|mt mlt|my mya bur|na nau|nb nob
nd nde|ne nep|ng ndo|nl nld dut|nn nno|no nor|nr nbl|nv nav|ny nya|oc oci|oj oji|om orm|or ori|os oss|pa pan|pi pli
pl pol|ps pus|pt por|qu que|rm roh|rn run|ro ron rum|ru rus|rw kin|sa san|sc srd|sd snd|se sme|sg sag|si sin|sk slk slo
sl slv|sm smo|sn sna|so som|sq sqi alb|sr srp|ss ssw|st sot|su sun|sv swe|sw swa swh|ta tam|te tel|tg tgk|th tha|ti tir
tk tuk|tl tgl|tn tsn|to ton|tr tur|ts tso|tt tat|tw twi|ty tah|ug uig|uk ukr|ur urd|uz uzb|ve ven|vi vie|vo vol|wa wln
wo wol|xh xho|yi yid|yo yor|za zha|zh zho chi|zu zul
"""
_TWO_LETTERS = {
    three: codes[0] for codes in map(str.split, re.split("[|\n]", _THREE_LETTERS.strip())) for three in codes[1:]
}
# Languages without a two-letter code that often occur in file names.
_THREE_ONLY = {
    *("arb", "arz", "ast", "awa", "bar", "bho", "ceb", "ckb", "cmn", "dsb", "fil", "fur", "gan", "gsw", "hak", "hsb"),
    *("ilo", "kab", "kmr", "lij", "lmo", "ltg", "lzh", "mai", "mni", "nds", "nan", "pap", "pes", "pbt", "prs", "sat"),
    *("scn", "szl", "tpi", "tzm", "vec", "wuu", "yue", "zsm"),
}
_TWO_LETTER_CODE = re.compile(r"[a-z]{2}(?:[-_][A-Za-z]{2,4}){0,2}")
_THREE_LETTER_CODE = re.compile(r"([a-z]{3})((?:[-_](?:[A-Z][a-z]{3}|[A-Z]{2}))*)")
_WITH_SCRIPT = re.compile(r"[a-z]{2,3}[-_][A-Z][a-z]{3}")
# Suffixes that may follow the language code in file names.
_OTHER_SUFFIXES = ("gz", "bz2", "xz", "zst", "txt", "sgm", "sgml")


class Languages(NamedTuple):
    """The language codes of sources and of targets."""

    source: str
    target: str


def base_language(code: str) -> str:
    """Returns a language code without its region or script, with two letters if possible: "pt" for "por_Latn"."""
    base = re.split("[-_]", code.lower())[0]
    return _TWO_LETTERS.get(base, base)


def best_match(language: str, codes: Iterable[str]) -> str | None:
    """Returns the code that fits a language best, or None.

    "en" fits "en-US", "EN_gb" and "eng_Latn"; "pt-BR" fits "pt", but not "pt-PT".
    """
    base, parts = base_language(language), _script_and_region(language)
    best, best_rank = None, -1
    for code in codes:
        pairs = list(zip(parts, _script_and_region(code), strict=True))
        differs = any(left and right and left != right for left, right in pairs)
        rank = sum(left == right for left, right in pairs)
        if base_language(code) == base and not differs and rank > best_rank:
            best, best_rank = code, rank
    return best


def _script_and_region(code: str) -> tuple[str, str]:
    """Returns the script, of four letters, and the region of a language code; "" for none."""
    parts = re.split("[-_]", code.lower())[1:]
    script = next((part for part in parts if len(part) == 4 and part.isalpha()), "")
    return script, next((part for part in parts if len(part) in (2, 3)), "")


def language_of_name(name: str) -> str | None:
    """Returns the language code at the end of a file name, or None.

    Examples are "train.en", "a.pt_BR.txt", "a.deu.gz" and "dev.eng_Latn". A code with a script may also be the first
    part of the name, as in "eng_Latn.devtest".
    """
    first, *parts = name.split(".")
    while parts and parts[-1].lower() in _OTHER_SUFFIXES:
        parts.pop()
    if parts and _is_code(parts[-1]):
        return parts[-1]
    return first if len(parts) < 2 and _WITH_SCRIPT.fullmatch(first) else None


def _is_code(text: str) -> bool:
    if _TWO_LETTER_CODE.fullmatch(text):
        return True
    if not (match := _THREE_LETTER_CODE.fullmatch(text)):
        return False
    return bool(match[2]) or match[1] in _TWO_LETTERS or match[1] in _THREE_ONLY
