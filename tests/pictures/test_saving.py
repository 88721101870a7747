import warnings

import pytest
from matplotlib.figure import Figure

from t2t_keras.pictures.saving import missing_characters, save


def figure_of(text: str) -> Figure:
    figure = Figure(figsize=(2, 1))
    figure.text(0.5, 0.5, text)
    return figure


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_same_figure_gives_the_same_file(tmp_path, suffix):
    for name in ("one", "other"):
        save(figure_of("text"), tmp_path / f"{name}.{suffix}")
    first, second = ((tmp_path / f"{name}.{suffix}").read_bytes() for name in ("one", "other"))
    assert first == second and len(first) > 500
    save(figure_of("else"), tmp_path / f"one.{suffix}")
    assert (tmp_path / f"one.{suffix}").read_bytes() != second


def test_characters_without_a_glyph_give_no_warning_and_remain_text_in_svg(tmp_path):
    text = "犬 שלום мир 日本"
    assert missing_characters([text]) == "".join(sorted("犬日本"))
    assert missing_characters(["Ελλάδα", "ß½"]) == missing_characters([]) == ""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for suffix in ("png", "svg"):
            save(figure_of(text), tmp_path / f"a.{suffix}")
    assert text in (tmp_path / "a.svg").read_text(encoding="utf-8")
