"""Settings that a class and an enumeration hold."""

import enum
from dataclasses import dataclass

import torch


class Mode(enum.IntEnum):
    SUM = 0
    MEAN = 1


class Config:
    DTYPE = torch.float16
    BAG = 8
    WIDTH = 2 * BAG

    def __init__(self):
        self.device = torch.device("cuda")


@dataclass(frozen=True)
class Limits:
    rows: int = 4
    scale: float = 0.5


LIMITS = Limits(rows=16)
