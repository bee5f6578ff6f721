"""The same model behind LitServe: its workers warm up in `setup`, and each answers with padded gears.

pip install litserve
python examples/server/lit.py --port 8000 --workers 2

curl -s localhost:8000/predict -H 'content-type: application/json' -d '{"texts": ["A cat sleeps."]}'
"""

# Without `from __future__ import annotations`: LitServe reads the type of `request` from the signature.
import argparse
from typing import Any

import litserve
import model
import torch
import weights

import gearcache


class EncoderAPI(litserve.LitAPI):
    """Embeddings of texts. LitServe reports a worker to its server when `setup` has returned."""

    def __init__(self, name: str, backend: str) -> None:
        super().__init__()
        self._name, self._backend = name, backend

    def setup(self, device: str) -> None:
        """Load the weights, and every gear: one worker compiles what is missing, the others wait for it."""
        self.encoder = model.Encoder(*weights.load(self._name), backend=self._backend)
        with torch.inference_mode():
            self.encoder.cached.warm(*self.encoder.inputs(["warm"]))
        stats = self.encoder.cached.stats
        print(f"warm: {stats.traces} traces, {stats.compiles} compiled, {stats.loads} loaded", flush=True)

    def decode_request(self, request: dict[str, Any], **_: Any) -> list[str]:
        """Return the texts of a request."""
        return [str(text) for text in request["texts"]]

    def predict(self, texts: list[str], **_: Any) -> torch.Tensor:
        """Return one embedding for each text."""
        ids, mask = self.encoder.inputs(texts)
        with torch.inference_mode():
            try:
                return self.encoder.cached(ids, mask)
            except gearcache.UnknownGear:  # larger than all gears
                return self.encoder.encode(ids, mask)

    def encode_response(self, embeddings: torch.Tensor, **_: Any) -> dict[str, Any]:
        """Return the body of the answer."""
        return {"embeddings": embeddings.tolist(), "release": model.RELEASE}


def main() -> None:
    """Read the options and serve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8000, help="default: 8000")
    parser.add_argument("--workers", type=int, default=2, help="worker processes (default: 2)")
    parser.add_argument("--model", choices=("minilm", "tiny"), default="minilm", help="tiny: random weights")
    parser.add_argument("--backend", choices=("inductor", "eager"), default="inductor", help="eager: no compiler")
    options = parser.parse_args()
    api = EncoderAPI(options.model, options.backend)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=options.workers)
    server.run(port=options.port, generate_client_file=False)


if __name__ == "__main__":
    main()
