"""Where text is cut."""

from t2t_keras.text.splitting import split_text


def test_split_text_prefers_the_end_of_a_sentence():
    text = "One two three. Four five six seven eight nine ten."
    assert split_text(text, lambda piece: len(piece) < 40) == [
        "One two three.",
        "Four five six seven eight nine ten.",
    ]
    assert split_text("aaa bbb ccc", lambda piece: len(piece) <= 7) == ["aaa", "bbb ccc"]
    assert split_text("aaaa", lambda piece: False) == list("aaaa")
    assert split_text("  ", lambda piece: False) == []
