"""Torch files are read without torch and without running their contents."""

import argparse
import collections
import io
import pickle
import zipfile

import numpy as np
import pytest

from t2t_keras.errors import InputError
from t2t_keras.formats.files.torch_files import read_torch_file
from tests.formats import torch_writer

both_layouts = pytest.mark.parametrize("is_old", [False, True], ids=["today", "old"])


@both_layouts
def test_tensors_are_read(tmp_path, is_old):
    rng = np.random.default_rng(1)
    arrays = {
        "a": rng.normal(size=(3, 4)).astype(np.float32),
        "scalar": np.array(2.5, np.float32),
        "empty": np.zeros([0, 3], np.float32),
        "half": rng.normal(size=5).astype(np.float16),
        "whole": np.arange(6).reshape(1, 2, 3),
    }
    contents = {"model": arrays, "args": {"layers": 3, "names": ["x", None]}, "epoch": 2}
    torch_writer.save(contents, tmp_path / "model.pt", is_old)
    contents_read = read_torch_file(tmp_path / "model.pt")
    assert {**contents_read, "model": 0} == {**contents, "model": 0}
    for name, array in arrays.items():
        assert contents_read["model"][name].dtype == array.dtype
        np.testing.assert_array_equal(contents_read["model"][name], array)


class View(torch_writer.Tensor):
    """A view of a tensor's storage."""

    def __init__(self, tensor, offset, size, stride):
        self.tensor, self.numbers = tensor, (offset, size, stride)

    def __reduce__(self):
        function, (storage, *_, hooks) = self.tensor.__reduce__()
        return function, (storage, *self.numbers, False, hooks)


def test_views_share_their_storage(tmp_path):
    """Covers a transposed tensor and two tensors of one storage."""
    tensor = torch_writer.Tensor(np.arange(12, dtype=np.float32))
    views = {"transposed": View(tensor, 0, (4, 3), (1, 4)), "part": View(tensor, 5, (2,), (3,))}
    torch_writer.save({**views, "whole": tensor}, tmp_path / "model.pt")
    tensors = read_torch_file(tmp_path / "model.pt")
    np.testing.assert_array_equal(tensors["transposed"], np.arange(12).reshape(3, 4).T)
    np.testing.assert_array_equal(tensors["part"], [5, 8])
    torch_writer.save({"beyond": View(tensor, 5, (4,), (3,))}, tmp_path / "beyond.pt")
    with pytest.raises(InputError, match="beyond.pt cannot be read as a file of torch: a tensor extends beyond"):
        read_torch_file(tmp_path / "beyond.pt")


@both_layouts
@pytest.mark.parametrize("size, stride", [((100_000, 100_000), (0, 0)), ((2**24 + 1,), (0,))])
def test_a_tensor_larger_than_its_storage_is_rejected(tmp_path, is_old, size, stride):
    """Rejects it before copying, because strides of 0 could repeat a number a billion times."""
    tensor = torch_writer.Tensor(np.arange(12, dtype=np.float32))
    torch_writer.save({"many": View(tensor, 0, size, stride)}, tmp_path / "many.pt", is_old)
    message = rf"many.pt cannot be read as a file of torch: a tensor of the shape \[{size[0]}.* has only 12 elements"
    with pytest.raises(InputError, match=message):
        read_torch_file(tmp_path / "many.pt")


def test_objects_that_are_not_tensors_are_skipped(tmp_path):
    """For example the meters and settings of a training."""
    contents = {"a": np.ones(3, np.float32), "scalar": [np.float64(2.5)]}
    torch_writer.save(contents, tmp_path / "model.pt")
    np.testing.assert_array_equal(read_torch_file(tmp_path / "model.pt")["a"], np.ones(3))
    torch_writer.save({**contents, "counts": [collections.Counter("ab")]}, tmp_path / "model.pt")
    with pytest.raises(InputError, match="it refers to collections.Counter, which tensors do not need"):
        read_torch_file(tmp_path / "model.pt")


class Malicious:
    """Calls a function when it is unpickled."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@both_layouts
@pytest.mark.parametrize("function", [exec, eval, __import__, getattr, io.open, pickle.loads])
def test_no_function_is_called(tmp_path, function, is_old):
    marker = tmp_path / "marker"
    torch_writer.save({"a": Malicious(function, f"open({str(marker)!r}, 'w')", "w")}, tmp_path / "model.pt", is_old)
    with pytest.raises(InputError, match=r"model.pt cannot be read as a file of torch: it refers to \w+\.\w+, which"):
        read_torch_file(tmp_path / "model.pt")
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt"]


def test_classes_of_this_process_are_not_modified(tmp_path):
    """A pickle can set attributes of a class that it names."""
    before = vars(argparse.Namespace).copy()
    for state in ({"epoch": 3}, (None, {"__init__": 1}), ({}, {"values": 2})):
        settings = argparse.Namespace.__new__(argparse.Namespace)
        torch_writer.save({"args": WithState(settings, state)}, tmp_path / "model.pt")
        if isinstance(state, dict):
            assert read_torch_file(tmp_path / "model.pt") == {"args": state}
            continue
        with pytest.raises(InputError, match="model.pt cannot be read as a file of torch"):
            read_torch_file(tmp_path / "model.pt")
    assert vars(argparse.Namespace) == before


class WithState:
    """Is pickled as an object with a state."""

    def __init__(self, value, state):
        self.parts = type(value), (), state

    def __reduce__(self):
        return self.parts


@pytest.mark.parametrize("position", [0.3, 0.6, 0.9])
def test_a_damaged_compressed_file_is_an_error(tmp_path, position):
    path = tmp_path / "model.pt"
    torch_writer.save({"a": np.arange(3000, dtype=np.float32)}, path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, contents in members.items():
            archive.writestr(name, contents)
        info = archive.getinfo("archive/data/0")
    damaged = bytearray(path.read_bytes())
    start = info.header_offset + 30 + len(info.filename)
    damaged[start + int(position * info.compress_size)] ^= 0xFF
    path.write_bytes(damaged)
    with pytest.raises(InputError, match="model.pt cannot be read as a file of torch"):
        read_torch_file(path)


@both_layouts
def test_damaged_files_are_errors(tmp_path, is_old):
    path = tmp_path / "model.pt"
    torch_writer.save({"a": np.zeros([300], np.float32)}, path, is_old)
    contents = path.read_bytes()
    messages = (
        "(it is truncated: the end|it does not begin as torch|it is damaged or truncated|the file ends too early)"
    )
    for length in (0, 3, 30, 100, len(contents) // 2, len(contents) - 5):
        path.write_bytes(contents[:length])
        with pytest.raises(InputError, match=f"model.pt cannot be read as a file of torch: {messages}"):
            read_torch_file(path)
    with pytest.raises(InputError, match="nowhere.pt does not exist"):
        read_torch_file(tmp_path / "nowhere.pt")


def test_missing_or_big_endian_numbers_are_rejected(tmp_path):
    path = tmp_path / "model.pt"
    torch_writer.save({"a": np.zeros([300], np.float32)}, path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for change, message in (
        ({"archive/data/0": b"1234"}, "archive/data/0 is too short"),
        ({"archive/byteorder": b"big"}, "its numbers are big-endian"),
    ):
        with zipfile.ZipFile(path, "w") as archive:
            for name, contents in {**members, **change}.items():
                archive.writestr(name, contents)
        with pytest.raises(InputError, match=message):
            read_torch_file(path)


def test_files_written_by_torch_are_read(tmp_path):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    arrays = {"a": rng.normal(size=(3, 4)).astype(np.float32), "b": np.arange(5)}
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    contents = {**tensors, "t": tensors["a"].T, "p": torch.nn.Parameter(tensors["a"]), "bf": tensors["a"].bfloat16()}
    for is_new in (True, False):
        torch.save(contents, tmp_path / "model.pt", _use_new_zipfile_serialization=is_new)
        tensors = read_torch_file(tmp_path / "model.pt")
        for name, array in (*arrays.items(), ("t", arrays["a"].T), ("p", arrays["a"])):
            np.testing.assert_array_equal(tensors[name], array)
        np.testing.assert_allclose(tensors["bf"].astype(np.float32), arrays["a"], rtol=1e-2)
