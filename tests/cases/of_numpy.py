"""Arrays and scalars of NumPy in a method: refused by name; torch imitates NumPy with other dtypes and classes."""

import numpy as np
import torch

from tests.cases.case import Case, texts

TABLE = np.array([1.0, 2.0, 4.0, 8.0], dtype=np.float32)


class Net(Case):
    def __init__(self):
        super().__init__()
        self.scale = np.float64(0.3)
        self.factor = float(np.sqrt(64))
        self.rows = torch.from_numpy(np.arange(4.0))


REFUSED = texts(
    Net,
    {
        "a scalar and ints, float32 in eager and float64 in a graph": "return x.int() * self.scale",
        "a class of a scalar, which is a float": "return x * 2 if isinstance(self.scale, float) else x",
        "an array that becomes a tensor": "return x * torch.from_numpy(TABLE)",
        "a table, float64 in eager": """
        return torch.from_numpy(np.power(10000.0, -np.arange(0, 8, 2) / 8)) * x
        """,
        "random numbers of NumPy": "return x * torch.from_numpy(np.random.rand(4))",
        "a tensor as an array": "return (x * 1).numpy()",
    },
    refused=r"it computes with NumPy, .* and use `math` or torch in place of .*; File ",
)
SERVED = texts(Net, {"what was made a number or a tensor before": "return x / self.factor + self.rows + np.pi"})
