"""A deployment script that tests prewarm: a method with two gears."""

DEPLOY = """
import torch, gearcache

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        config = gearcache.CompilerConfig(backend="eager")
        self.cached = gearcache.cache_compile(self.decode, config=config, gears={"x": {0: [1, 2]}})

    def decode(self, x):
        return self.linear(x)

def build():
    print("noise of the deployment")
    with torch.device("meta"):
        Net().cached(torch.zeros(2, 4))
"""
