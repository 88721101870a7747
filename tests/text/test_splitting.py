"""Where text is cut."""

from t2t_keras.text.splitting import split_text


def test_split_text_prefers_the_end_of_a_sentence():
    text = "One two three. Four five six seven eight nine ten."
    assert split_text(text, lambda piece: len(piece) < 40) == [
        "One two three.",
        "Four five six seven eight nine ten.",
    ]
    # A number, a time and an abbreviation end no sentence; Chinese needs no blank behind one.
    for text in ("It costs 3.5 francs", "At 12:30 o'clock", "The U.S. Army"):
        assert all(piece in text.split() for piece in split_text(text, lambda piece: " " not in piece))
    assert split_text("狗在睡觉。猫在叫", lambda piece: len(piece) < 6) == ["狗在睡觉。", "猫在叫"]
    assert split_text("aaa bbb ccc", lambda piece: len(piece) <= 7) == ["aaa", "bbb ccc"]
    assert split_text("aaaa", lambda piece: False) == list("aaaa")
    assert split_text("  ", lambda piece: False) == []
