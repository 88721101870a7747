"""The places where text is split."""

from t2t_keras.text.splitting import split_context, split_text


def test_split_text_prefers_the_end_of_a_sentence():
    text = "One two three. Four five six seven eight nine ten."
    assert split_text(text, lambda piece: len(piece) < 40) == [
        "One two three.",
        "Four five six seven eight nine ten.",
    ]
    # A number, a time and an abbreviation do not end a sentence; Chinese needs no blank after one.
    for text in ("It costs 3.5 francs", "At 12:30 o'clock", "The U.S. Army"):
        assert all(piece in text.split() for piece in split_text(text, lambda piece: " " not in piece))
    assert split_text("狗在睡觉。猫在叫", lambda piece: len(piece) < 6) == ["狗在睡觉。", "猫在叫"]
    assert split_text("aaa bbb ccc", lambda piece: len(piece) <= 7) == ["aaa", "bbb ccc"]
    assert split_text("aaaa", lambda piece: False) == list("aaaa")
    assert split_text("  ", lambda piece: False) == []


def test_a_text_is_cut_near_its_middle():
    assert split_text("a b c d e f g h", lambda piece: len(piece) < 10) == ["a b c", "d e f g h"]
    # The end of a sentence only counts in the middle half.
    assert split_text("Yes. One two three four five", lambda piece: len(piece) < 20)[0] == "Yes. One two"


def test_a_head_of_which_two_do_not_fit_is_text():
    fits = lambda piece: len(piece) < 20  # noqa: E731
    assert split_context("who? <c> one two three four five", "<c>", fits)[1].startswith("who? <c> ")
    assert split_context("who is it then? <c> one two", "<c>", fits) == split_text("who is it then? <c> one two", fits)


def test_a_cut_is_the_one_next_to_the_middle():
    assert split_text("aa bb cc dd ee ff", lambda piece: len(piece) < 12) == ["aa bb cc", "dd ee ff"]
