import numpy as np

from t2t_keras.lite.buffers import Buffers


def test_what_is_held_is_not_written_to():
    buffers = Buffers()
    held = [buffers.copy(np.full([7, 33], value, np.float32)) for value in range(4)]
    assert [array[0, 0] for array in held] == [0, 1, 2, 3]
    assert all(array.ctypes.data % 64 == 0 for array in held)


def test_what_nobody_holds_is_used_again():
    buffers = Buffers()
    places = {buffers.copy(np.ones([7, 33], np.float32)).ctypes.data for _ in range(10)}
    assert len(places) == 1
    kept = buffers.copy(np.ones([7, 33], np.float32))
    part = kept[2:]
    del kept
    assert buffers.copy(np.zeros([7, 33], np.float32)).ctypes.data != part.base.ctypes.data
    np.testing.assert_array_equal(part, 1)


def test_sizes_change():
    buffers = Buffers()
    for rows in (4, 9, 2, 9):
        array = np.arange(rows * 5, dtype=np.float32).reshape(rows, 5)
        np.testing.assert_array_equal(buffers.copy(array), array)
