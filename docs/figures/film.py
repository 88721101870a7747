"""A sequence of pictures as an SVG file that is animated by its style sheet.

The file stores only the changed part of each picture. Readers who prefer no motion, and viewers without animated style
sheets, see the last picture.
"""

import base64
import html
import io
from collections.abc import Sequence
from typing import NamedTuple

from PIL import Image, ImageChops

_COLORS = 64
_STYLE = (
    "@media (prefers-reduced-motion:no-preference){{image{{animation-duration:{seconds:g}s;"
    "animation-timing-function:step-end;animation-iteration-count:infinite}}}}"
)


class Frame(NamedTuple):
    """A picture, and the number of seconds for which it is shown."""

    picture: Image.Image
    seconds: float


def film(frames: Sequence[Frame], title: str) -> str:
    """Returns the text of an SVG file; all pictures must have one size, and `title` is an alternative text."""
    pictures = _of_one_palette([frame.picture for frame in frames])
    whole = sum(frame.seconds for frame in frames)
    rules, parts, now = [], [], 0.0
    for number, picture in enumerate(pictures):
        box = ImageChops.difference(picture, pictures[number - 1]).getbbox() if number else (0, 0, *picture.size)
        if box:
            hidden = "0%{visibility:hidden}" if number else ""
            rules.append(f"@keyframes f{number}{{{hidden}{100 * now / whole:.2f}%{{visibility:visible}}}}")
            parts.append(_image(picture.crop(box), box[:2], f"f{number}"))
        now += frames[number].seconds
    width, height = pictures[0].size
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
            f"<title>{html.escape(title)}</title>",
            f"<style>{_STYLE.format(seconds=whole)}{''.join(rules)}</style>",
            *parts,
            "</svg>\n",
        ]
    )


def _of_one_palette(pictures: Sequence[Image.Image]) -> list[Image.Image]:
    """Reduces the pictures to a common palette of few colours, so that unchanged areas stay unchanged."""
    colored = [picture.convert("RGB") for picture in pictures]
    width, height = colored[0].size
    together = Image.new("RGB", (width, height * len(colored)))
    for number, picture in enumerate(colored):
        together.paste(picture, (0, height * number))
    palette = together.quantize(_COLORS)
    return [picture.quantize(palette=palette, dither=Image.Dither.NONE).convert("RGB") for picture in colored]


def _image(picture: Image.Image, place: tuple[int, int], rule: str) -> str:
    file = io.BytesIO()
    picture.quantize(_COLORS).convert("RGB").save(file, "webp", lossless=True, quality=100, method=6)
    data = base64.b64encode(file.getvalue()).decode()
    (x, y), (width, height) = place, picture.size
    return (
        f'<image x="{x}" y="{y}" width="{width}" height="{height}" style="animation-name:{rule}" '
        f'href="data:image/webp;base64,{data}"/>'
    )
