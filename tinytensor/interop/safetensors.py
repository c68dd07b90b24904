"""Turns Tensors by name into a safetensors file, and such a file into Tensors."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import numpy as np

from tinytensor.dtype import USER_DTYPES, DType, dtypes
from tinytensor.errors import DTypeError
from tinytensor.lazy import lazy_import
from tinytensor.realize import from_host, to_host
from tinytensor.tensor.creation import device_name
from tinytensor.tensor.tensor import Tensor

PathName = str | os.PathLike[str]


def format_name(dtype: DType) -> str:
    """Return the name that a file gives to a dtype.

    >>> [format_name(each) for each in (dtypes.bfloat16, dtypes.uint8, dtypes.bool)]
    ['BF16', 'U8', 'BOOL']
    """
    return FORMAT_NAMES.get(dtype, dtype.name[0].upper() + str(dtype.itemsize * 8))


FORMAT_NAMES = {
    **{dtypes.bool: "BOOL", dtypes.bfloat16: "BF16"},
    **{dtypes.float8_e4m3fn: "F8_E4M3", dtypes.float8_e5m2: "F8_E5M2"},
}
BY_FORMAT_NAME = {format_name(dtype): dtype for dtype in USER_DTYPES}


def _library(who: str) -> ModuleType:
    return lazy_import("safetensors", "safetensors", who)


def save_file(
    tensors: Mapping[str, Tensor], filename: PathName, metadata: dict[str, str] | None = None
) -> None:
    """Write tensors to a file, such as `model.state_dict()`; all are computed as one schedule.

    DTypes: all that tensors have; a file keeps each.
    Raises: ImportError unless the extra `safetensors` is installed.
    """
    library = _library("save_file")
    listed = list(tensors.values())
    if listed:
        listed[0].realize(*listed[1:])
    arrays = {name: _stored(tensor) for name, tensor in tensors.items()}
    specs = {
        name: library.TensorSpec(
            dtype=tensors[name].dtype.name,
            shape=array.shape,
            data_ptr=array.ctypes.data,
            data_len=array.nbytes,
        )
        for name, array in arrays.items()
    }
    library.serialize_file(specs, filename, metadata)


def _stored(tensor: Tensor) -> np.ndarray:
    leaf = tensor.realize()._own_cell().leaf
    assert leaf is not None, "realize fills every cell"
    return to_host(leaf)


def load_file(filename: PathName, device: str | None = None) -> dict[str, Tensor]:
    """Read all tensors of a file to a device.

    Raises: ImportError unless the extra `safetensors` is installed; DTypeError for a dtype that
    no tensor has.
    """
    library = _library("load_file")
    place = device_name(device)
    loaded = {}
    for name, entry in library.deserialize(Path(filename).read_bytes()):
        dtype = BY_FORMAT_NAME.get(entry["dtype"])
        if dtype is None:
            sentence = f"load_file: no tensor has the dtype of {name}: {entry['dtype']}"
            raise DTypeError(f"{sentence}; it must be one of {', '.join(BY_FORMAT_NAME)}.")
        array = np.frombuffer(entry["data"], dtype.storage_numpy).reshape(entry["shape"])
        loaded[name] = Tensor._made(from_host(array, dtype, place), place)
    return loaded
