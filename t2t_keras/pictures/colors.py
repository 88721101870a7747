"""Colours that colour-blind readers can distinguish: those of Okabe and Ito (2008), and lighter and darker variants."""

Color = tuple[float, float, float]

# Blue, orange, green, purple, vermilion, sky blue, dark grey. Okabe and Ito's yellow is hardly visible on white.
_COLORS = ("0072b2", "e69f00", "009e73", "cc79a7", "d55e00", "56b4e9", "444444")
# Each round of the colours is mixed with this share of white (1.0) or black (0.0).
_ROUNDS = ((0.0, 1.0), (0.55, 1.0), (0.45, 0.0))
_MARKERS = "os^Dv"


def color(number: int) -> Color:
    """Returns the RGB colour, with values from 0 to 1, of a curve or head; colours repeat after 21 numbers."""
    round_number, place = divmod(number % (len(_COLORS) * len(_ROUNDS)), len(_COLORS))
    share, tint = _ROUNDS[round_number]
    parts = (int(_COLORS[place][start : start + 2], 16) / 255 for start in (0, 2, 4))
    red, green, blue = ((1 - share) * part + share * tint for part in parts)
    return red, green, blue


def marker(number: int) -> str:
    """Returns the Matplotlib marker of a curve, which helps to distinguish curves of similar colours."""
    return _MARKERS[number % len(_MARKERS)]
