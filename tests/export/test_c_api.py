"""A program in C loads an exported model with TensorFlow's C API and translates."""

import subprocess

import numpy as np
import pytest

from tests.export import c_program
from tests.export.exporting import LINES, TEXTS

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return c_program.compile_program(tmp_path_factory.mktemp("program")) or pytest.skip("there is no C compiler here")


def test_the_program_translates_like_the_translator(translator, version, op_library, program):
    expected = translator.translate(LINES)
    texts, scores = zip(*c_program.translate(program, op_library, version, TEXTS, 8), strict=True)
    assert list(texts) == [translation.text for translation in expected]
    np.testing.assert_allclose(scores, [translation.score for translation in expected], rtol=1e-5, atol=1e-4)


def test_loading_fails_without_the_custom_operations(version, program):
    done = subprocess.run([program, "no_such_library.so", version, "a:0", "b:0", "c:0", "1"], capture_output=True)
    assert done.returncode == 1
    assert b"no_such_library.so" in done.stderr
