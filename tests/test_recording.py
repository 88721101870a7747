"""Recordings of a terminal and of the page show the recorded states in order, and respect reduced motion."""

import base64
import io
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "docs/figures"))

import film  # noqa: E402
import terminal  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"
EVENTS = [
    (0.5, "1. Text\r\n-------\r\n"),
    (1.0, "\r  0%|    | 0/2"),
    (21.0, "\r 50%|██  | 1/2"),
    (41.0, "\r100%|████| 2/2"),
    (42.0, "\r               \r"),
    (42.0, "\x1b[1mstep 2\x1b[0m: done & <kept>\r\n"),
    (200.0, "the end\r\n"),
]


def screen_rows(events, columns: int = 40) -> list[list[tuple[float, str]]]:
    screen = terminal.Screen(columns)
    for when, text in events:
        screen.print(when, text)
    return [[tuple(state) for state in row] for row in screen.rows]


def test_screens_record_the_text_and_time_of_each_row():
    rows = screen_rows(EVENTS)
    assert [row[-1][1].rstrip() for row in rows if row] == ["1. Text", "-------", "step 2: done & <kept>", "the end"]
    assert [(when, text.rstrip()) for when, text in rows[2]] == [
        (1.0, "  0%|    | 0/2"),
        (21.0, " 50%|██  | 1/2"),
        (41.0, "100%|████| 2/2"),
        (42.0, "step 2: done & <kept>"),
    ]


def test_films_contain_the_changed_part_of_each_frame():
    """The images combine to the frames."""
    arrays = [np.full((30, 40, 3), 250, np.uint8) for _ in range(4)]
    for number, array in enumerate(arrays):
        array[10 : 10 + 5 * min(number, 2), 5:9] = (200, 30, 30)  # grows twice, then stays the same
    frames = [film.Frame(Image.fromarray(array), 0.5 + number) for number, array in enumerate(arrays)]
    root = ElementTree.fromstring(film.film(frames, "what it shows"))
    assert root.find(f"{SVG}title").text == "what it shows" and not list(root.iter(f"{SVG}script"))
    images = list(root.iter(f"{SVG}image"))
    assert [[int(image.get(name)) for name in ("x", "y", "width", "height")] for image in images] == [
        [0, 0, 40, 30],
        [5, 10, 4, 5],
        [5, 15, 4, 5],
    ]
    seen = Image.new("RGB", (40, 30))
    for image, array in zip(images, arrays, strict=False):
        picture = Image.open(io.BytesIO(base64.b64decode(image.get("href").partition(",")[2]))).convert("RGB")
        seen.paste(picture, (int(image.get("x")), int(image.get("y"))))
        np.testing.assert_allclose(np.asarray(seen).astype(int), array, atol=8)
    style = root.find(f"{SVG}style").text
    rules = dict(re.findall(r"@keyframes (f\d)\{(.*?\})\}", style))
    assert rules["f1"] == "0%{visibility:hidden}6.25%{visibility:visible}" and "25.00%" in rules["f2"]
    assert [image.get("style") for image in images] == [f"animation-name:f{number}" for number in range(3)]
    assert "@media (prefers-reduced-motion:no-preference){image{animation-duration:8s;" in style


def test_documented_images_are_small_and_respect_reduced_motion():
    paths = list((ROOT / "docs/images").glob("*.svg"))
    assert len(paths) > 10
    for path in paths:
        text = path.read_text(encoding="utf-8")
        root = ElementTree.fromstring(text)
        assert not list(root.iter(f"{SVG}script")), path.name
        assert len(text) < (300_000 if list(root.iter(f"{SVG}image")) else 100_000), path.name
        assert "@keyframes" not in text or "prefers-reduced-motion" in text, path.name
