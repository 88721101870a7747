"""The server settings reject values that are not finite."""

import dataclasses
import math

import pytest

from t2t_keras.errors import InputError
from t2t_keras.serving.options import ServingOptions

SECONDS = [field.name for field in dataclasses.fields(ServingOptions) if field.name.endswith("_seconds")]


@pytest.mark.parametrize("name", SECONDS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_times_are_finite(tmp_path, name, value):
    with pytest.raises(InputError, match=rf"^{name}\b.*{value:g}"):
        ServingOptions(str(tmp_path), **{name: value})
