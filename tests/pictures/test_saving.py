"""Files of pictures."""

import warnings

import pytest
from matplotlib.figure import Figure

from t2t_keras.pictures.saving import missing_characters, save


def figure_of(text: str) -> Figure:
    figure = Figure(figsize=(2, 1))
    figure.text(0.5, 0.5, text)
    return figure


@pytest.mark.parametrize("end", ["png", "svg"])
def test_the_same_figure_gives_the_same_file(tmp_path, end):
    for name in ("one", "other"):
        save(figure_of("text"), tmp_path / f"{name}.{end}")
    one, other = ((tmp_path / f"{name}.{end}").read_bytes() for name in ("one", "other"))
    assert one == other and len(one) > 500
    save(figure_of("else"), tmp_path / f"one.{end}")
    assert (tmp_path / f"one.{end}").read_bytes() != other


def test_characters_without_a_glyph_give_no_warning_and_stay_text_in_svg(tmp_path):
    text = "犬 שלום мир 日本"
    assert missing_characters([text]) == "".join(sorted("犬日本"))
    assert missing_characters(["Ελλάδα", "ß½"]) == missing_characters([]) == ""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for end in ("png", "svg"):
            save(figure_of(text), tmp_path / f"a.{end}")
    assert text in (tmp_path / "a.svg").read_text(encoding="utf-8")
