"""Colours of pictures that the colour-blind tell apart: those of Okabe and Ito (2008), then lighter and darker ones."""

Color = tuple[float, float, float]

# Blue, orange, green, purple, vermilion, sky blue, black. Their yellow could hardly be seen on white.
_COLORS = ("0072b2", "e69f00", "009e73", "cc79a7", "d55e00", "56b4e9", "444444")
# By which shares a further round is mixed with white, or with black.
_ROUNDS = ((0.0, 1.0), (0.55, 1.0), (0.45, 0.0))
_MARKERS = "os^Dv"


def color(number: int) -> Color:
    """Red, green and blue, from 0 to 1, of the curve or head with this number; 21 differ, then they come again."""
    round_number, place = divmod(number % (len(_COLORS) * len(_ROUNDS)), len(_COLORS))
    share, other = _ROUNDS[round_number]
    parts = (int(_COLORS[place][start : start + 2], 16) / 255 for start in (0, 2, 4))
    red, green, blue = ((1 - share) * part + share * other for part in parts)
    return red, green, blue


def marker(number: int) -> str:
    """The sign at the points of a curve, for matplotlib: it tells apart what colours might not."""
    return _MARKERS[number % len(_MARKERS)]
