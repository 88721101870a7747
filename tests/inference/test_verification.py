"""Translations again, one by one."""

from t2t_keras.inference.translation import Translation
from t2t_keras.inference.verification import Sample


def test_verification_finds_a_difference(capsys):
    """Whose translation of a line depends on its neighbours."""

    class Unsteady:
        def translate(self, lines):
            return [Translation("B", -1.0 - 0.5 * (line == "b"), num_parts=1) for line in lines]

    items = [(n, line, Translation("B", -1.0, num_parts=1)) for n, line in enumerate("aba", start=1)]
    for kept, agrees in ((items, False), (items[:1], True), ([(1, "a", Translation("C", -1.0))], False)):
        sample = Sample(5)
        sample.add(kept)
        assert sample.verify(Unsteady()) == agrees
    err = capsys.readouterr().err
    assert "verify: line 2 gave 'B' (-1.000000), alone 'B' (-1.500000)" in err
    assert "verify: 2 of 3 lines agree" in err


def test_a_sample_is_of_all_lines():
    sample = Sample(20)
    sample.add((number, "a", Translation("B")) for number in range(1000))
    numbers = [number for number, *_ in sample._kept]
    assert len(set(numbers)) == 20 and 300 < sum(numbers) / 20 < 700
