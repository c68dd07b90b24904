"""What trains networks, under PyTorch's names."""

from tinytensor.optim import lr_scheduler
from tinytensor.optim.adam import Adam, AdamW
from tinytensor.optim.optimizer import Optimizer
from tinytensor.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "lr_scheduler"]
