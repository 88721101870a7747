"""Recordings of a terminal and of a page show what was there, in order, and are still where motion is not wanted."""

import base64
import io
import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.serving.page_driver import IN_A_BROWSER, started_browser

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "docs/figures"))

import film  # noqa: E402
import record  # noqa: E402
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


def write_cast(path: Path, events=EVENTS, columns: int = 40) -> Path:
    head = {"version": 2, "width": columns, "height": 30, "command": "python -m made.up"}
    lines = [json.dumps(head), *(json.dumps([when, "o", text]) for when, text in events)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def shown(events, columns: int = 40) -> list[list[tuple[float, str]]]:
    screen = terminal.Screen(columns)
    for when, text in events:
        screen.print(when, text)
    return [[tuple(state) for state in row] for row in screen.rows]


def test_a_command_runs_in_a_terminal_of_the_width_that_is_drawn():
    program = "import os, sys; print(sys.stderr.isatty(), os.get_terminal_size().columns, 'ä')"
    events = list(record.printed([sys.executable, "-c", program]))
    assert "".join(text for _, text in events) == f"True {record.COLUMNS} ä\r\n"
    with pytest.raises(RuntimeError, match="exit status 3"):
        list(record.printed([sys.executable, "-c", "raise SystemExit(3)"]))


def test_one_state_a_second_is_kept_of_what_is_written_over_and_the_last_one():
    bars = [(number / 10, f"\r{number}") for number in range(25)]
    kept = record.thinned([(0.0, "a\r\n"), *bars, (2.5, "\r\n"), (2.6, "b\r\n"), (2.7, "c\r\n")])
    assert [text for _, text in kept] == ["a\r\n", "\r9", "\r19", "\r24", "\r\n", "b\r\n", "c\r\n"]
    assert kept[1][0] == 0.9


def test_blanks_that_erase_a_line_are_kept():
    bar = "\r 40%|####      |"
    events = [(0.0, bar), (2.0, "\r".ljust(len(bar))), (2.0, "\r"), (2.0, "step 4: saved\r\n")]
    kept = record.thinned(events)
    assert shown(kept)[0][-1][1].rstrip() == "step 4: saved"


def test_a_screen_keeps_what_each_row_showed_and_when():
    rows = shown(EVENTS)
    assert [row[-1][1].rstrip() for row in rows if row] == ["1. Text", "-------", "step 2: done & <kept>", "the end"]
    assert [(when, text.rstrip()) for when, text in rows[2]] == [
        (1.0, "  0%|    | 0/2"),
        (21.0, " 50%|██  | 1/2"),
        (41.0, "100%|████| 2/2"),
        (42.0, "step 2: done & <kept>"),
    ]


def test_long_lines_go_on_below_and_what_is_erased_is_gone():
    assert [row[-1][1] for row in shown([(0.0, "abcdefgh")], columns=3)] == ["abc", "def", "gh"]
    assert shown([(0.0, "abc"), (1.0, "\rx\x1b[K")])[0][-1] == (1.0, "x")
    assert [row[-1][1] for row in shown([(0.0, "a\nb\x1b[A\rc\b\bd")])] == ["d", " b"]


def test_waits_are_cut_and_no_frame_is_too_short_to_be_seen():
    frames = terminal.Frames([0.0, 0.1, 10.0, 500.0])
    begins = [0.0, terminal.BEGINNING, terminal.BEGINNING + 10 / terminal.SPEED]
    assert frames.shown == pytest.approx([*begins, begins[-1] + terminal.LONGEST])
    assert frames.real == [0.0, 0.1, 10.0, 500.0]
    assert [frames.number(time) for time in (0.0, 0.05, 0.1, 3.0, 10.0, 500.0)] == [0, 1, 1, 2, 2, 3]


def test_the_file_has_no_script_and_every_rule_that_it_names(tmp_path):
    text = terminal.recording(write_cast(tmp_path / "made.cast"))
    root = ElementTree.fromstring(text)
    assert root.find(f"{SVG}title").text == "What python -m made.up prints in a terminal"
    assert not list(root.iter(f"{SVG}script")) and "prefers-reduced-motion" in text
    named = set(re.findall(r'style="animation-name:(\w+)"', text))
    assert named == set(re.findall(r"@keyframes (\w+)", text)) and len(named) > 5
    for rule in re.findall(r"@keyframes \w+\{((?:[\d.]+%\{[^}]*\})+)\}", text):
        shares = [float(share) for share in re.findall(r"([\d.]+)%\{", rule)]
        assert shares == sorted(set(shares)) and shares[0] == 0 and shares[-1] < 100


def test_a_film_has_of_each_picture_what_changed():
    """Laid over each other, they are the pictures."""
    arrays = [np.full((30, 40, 3), 250, np.uint8) for _ in range(4)]
    for number, array in enumerate(arrays):
        array[10 : 10 + 5 * min(number, 2), 5:9] = (200, 30, 30)  # grows twice, then stays
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


def test_pictures_of_the_documents_are_whole_and_small_and_those_that_move_can_be_still():
    paths = list((ROOT / "docs/images").glob("*.svg"))
    assert len(paths) > 10
    for path in paths:
        text = path.read_text(encoding="utf-8")
        root = ElementTree.fromstring(text)
        assert not list(root.iter(f"{SVG}script")), path.name
        assert len(text) < (300_000 if list(root.iter(f"{SVG}image")) else 100_000), path.name
        assert "@keyframes" not in text or "prefers-reduced-motion" in text, path.name


@pytest.mark.integration
@IN_A_BROWSER
def test_a_browser_shows_what_the_terminal_showed(tmp_path):
    """At any time; and the end alone where motion is not wanted."""
    events = [*EVENTS, (201.0, "".join(f"line {number}\r\n" for number in range(30)))]
    (tmp_path / "made.svg").write_text(terminal.recording(write_cast(tmp_path / "a.cast", events)), "utf-8")
    frames = terminal.Frames([when for when, _ in events])
    visible = """
        for (const each of document.getAnimations()) { each.pause(); each.currentTime = 1000 * arguments[0]; }
        const view = document.querySelector('svg svg');
        const top = document.querySelector('svg > rect').getBoundingClientRect().top + view.y.baseVal.value;
        return [...document.querySelectorAll('svg svg text')].filter((text) => {
          const box = text.getBoundingClientRect(), middle = (box.top + box.bottom) / 2 - top;
          return getComputedStyle(text).visibility == 'visible' && middle > 0 && middle < view.height.baseVal.value;
        }).map((text) => text.textContent);
    """
    browser = started_browser(tmp_path / "profile")
    try:
        browser.get((tmp_path / "made.svg").as_uri())
        last = [f"line {number}" for number in range(4, 30)]
        for real, lines in [
            (0.0, []),
            (21.0, ["1. Text", "-------", " 50%|██  | 1/2"]),
            (42.0, ["1. Text", "-------", "step 2: done & <kept>"]),
            (201.0, last),
        ]:
            seconds = frames.shown[frames.number(real)] + 0.01
            command = ["$ python -m made.up"] if real < 201 else []
            assert browser.execute_script(visible, seconds) == command + lines, real
        feature = {"name": "prefers-reduced-motion", "value": "reduce"}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        assert browser.execute_script("return document.getAnimations().length") == 0
        assert browser.execute_script(visible, 0) == last
    finally:
        browser.quit()
