"""A package as people install it."""

import torch

from .ops.softmax import softmax as softmax

__version__ = "1.2"
torch.set_default_device("cuda")
