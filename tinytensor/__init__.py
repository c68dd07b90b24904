"""tinytensor: a tiny lazy tensor framework with its own compiler.

>>> from tinytensor import Tensor
>>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
>>> (x @ x.T + 1.0).relu().tolist()
[[6.0, 12.0], [12.0, 26.0]]
"""

from tinytensor.config import config
from tinytensor.dtype import dtypes
from tinytensor.runtime.device import Device
from tinytensor.tensor.tensor import Tensor

__version__ = "0.1.0"
__all__ = ["Device", "Tensor", "config", "dtypes"]
