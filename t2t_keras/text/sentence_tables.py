"""Abbreviations by language, for splitting text into sentences."""

from typing import NamedTuple


class Table(NamedTuple):
    """Abbreviations of a language, each without its final full stop. The first letter may be a capital.

    Attributes:
        never_last: abbreviations that never end a sentence.
        before_numbers: patterns of abbreviations, and of words that look like one, that do not end a sentence before a
            number.
        rarely_last: abbreviations that end a sentence only before one of `starters`. Single letters are treated in the
            same way.
        starters: words that often begin a sentence, capitalised.
        numbers: a pattern of numbers followed by a full stop, such as ordinals, that are treated like `rarely_last`; ""
            for none.
        openers: words that, capitalised between lowercase words, begin a sentence after one without its final mark.
        labelled: words after which an opener is a label, as in "vitamin A".
        predicates: words before which an opener is a label, as in "plan A is".
    """

    never_last: tuple[str, ...] = ()
    before_numbers: tuple[str, ...] = ()
    rarely_last: tuple[str, ...] = ()
    starters: tuple[str, ...] = ()
    numbers: str = ""
    openers: tuple[str, ...] = ()
    labelled: tuple[str, ...] = ()
    predicates: tuple[str, ...] = ()


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_TITLES = _words("Mr Mrs Ms Dr Prof")

OTHER_LANGUAGES = Table(_TITLES)

TABLES = {
    "en": Table(
        (
            *_TITLES,
            *_words("Messrs Mmes Rev Hon Sen Rep Gov Gen Col Maj Capt Cmdr Lt Sgt Pres Supt Insp Fr"),
            *_words("e.g i.e cf viz vs approx esp resp incl excl"),
        ),
        _words(
            "No Nos art arts ch chap fig figs eq eqs sec vol vols p pp par ed op ref tab ca c max min tel ext"
            " Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec Mon Tue Tues Wed Thu Thur Thurs Fri Sat Sun"
        ),
        _words(
            "etc al Inc Ltd Co Corp Bros Jr Sr Ph.D M.D B.A M.A U.S U.K U.N E.U D.C a.m p.m A.M P.M U.S.A A.D B.C"
            " St Mt Ft Ave Blvd Rd Sq Dept Univ Assn Est Asst Attn ft cm mm km kg lb lbs oz sq hr hrs mins secs J.K"
        ),
        _words(
            "The A An This That These Those He She It They We You I His Her Its Their Our My Your There Here What Who"
            " When Where Why How Which In On At By For From With After Before But And So If As Then Now Not No Yes One"
            " Some Many Most All Each Every Both While Since Although However Also Let Is Are Was Were Do Does Did Can"
            " To Two Please Another"
        ),
        # Only in English: other languages write the first word of a title in capitals, and the others in lower case.
        openers=_words("A An The This These Two Three Four Some Several One He She It They There"),
        labelled=_words(
            "a an the and or of in on to from between vitamin hepatitis influenza plan type grade class group section"
            " part team option side level point phase category figure table appendix exhibit annex block gate"
        ),
        predicates=_words(
            "is was are were be and or but to in on at of for from by with as than then has have had can will would"
            " should does did minor major"
        ),
    ),
    "de": Table(
        (
            *("z. B", "d. h", "u. a", "i. d. R", "o. ä", "u. ä", "s. o", "s. u", "v. a", "z. T", "m. E", "u. U"),
            *_words("Dr Prof Hr Fr Frl Dipl.-Ing Dipl Ing Hrsg St bzw vgl ca inkl exkl evtl ggf gem sog bes insb zzgl"),
            *_words("mind max min jun sen geb verh gest allg amtl ehem urspr einschl entspr zw"),
        ),
        _words(
            "Nr Nrn Abb Tab Kap Bd Bde Aufl Art Abs Anm S Tel Ziff [a-zA-ZÄÖÜäöüß]*str Mo Di Mi Do Sa So Jan Feb Aug"
            " Sept Okt Nov Dez"
        ),
        _words("usw etc usf Chr Co Mio Mrd Tsd Str Std Min Sek Jh Jhd Fa Tel Fax Bhf Hbf u Pl"),
        _words(
            "Der Die Das Den Dem Des Ein Eine Einen Einem Einer Er Sie Es Wir Ihr Ich Du Man Dies Diese Dieser Dieses"
            " Hier Da Dort Dann Doch Aber Und Oder Wenn Weil Als Wie Was Wer Wo Warum Wann In Im An Am Auf Aus Bei Beim"
            " Mit Nach Von Vom Vor Zu Zum Zur Für Über Um Unter Durch Ohne Seit Seine Sein Ihre Mein Meine Unser Unsere"
            " Nun Jetzt Heute Auch Nur Noch So Alle Viele Einige Zwei Drei Ist Sind War Hat Haben Kein Keine Nicht Bis"
        ),
        "[0-9]{1,2}|[IVX]+",
    ),
    "fr": Table(
        (*_words("M MM Mme Mmes Mlle Mlles Me Dr Pr Mgr St Ste cf env av apr"), "p. ex", "c.-à-d"),
        _words("no nos n fig figs chap art p pp vol t tél tel éd al bd janv févr avr juil sept oct nov déc"),
        _words("etc J.-C Cie bd boul tél ex réf J.-P J.-J"),
        _words(
            "Le La Les Un Une Des Du Ce Cet Cette Ces Il Elle Ils Elles On Nous Vous Je Tu Mon Ma Mes Son Sa Ses Notre"
            " Nos Votre Vos Leur Leurs Mais Et Ou Où Donc Or Si Quand Comme Que Qui Quel Quelle Dans En Sur Sous Avec"
            " Sans Pour Par Après Avant Depuis Ici Là Voici Voilà Puis Alors Tout Tous Deux Est À Au Aux C L J D N Y"
        ),
    ),
}
