"""A server of the standard library: POST rows as JSON to /features or /scores; GET /health reports compiles."""

import json
import os
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
from model import GEARS, Classifier


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    def do_GET(self) -> None:
        self._answer(200, {"compiles": sum(method.stats.compiles for method in methods.values())})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        method = methods.get(self.path.strip("/"))
        if method is None:
            self._answer(404, {"error": f"there is {' and '.join(methods)}"})
            return
        try:
            rows = torch.tensor(json.loads(body), dtype=torch.float32).reshape(-1, 64)
            with torch.inference_mode():
                self._answer(200, {"rows": method(rows).tolist()})
        except (ValueError, TypeError, RuntimeError) as error:
            self._answer(422, {"error": str(error)})

    def _answer(self, code: int, document: object) -> None:
        data = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Classifier().eval()  # a real server loads its weights here
    methods = {"features": model.features, "scores": model.scores}
    for method in methods.values():
        for size in GEARS:
            method.warm(torch.zeros(size, 64))
    server = ThreadingHTTPServer(("", int(os.environ.get("PORT", "8000"))), Handler)
    print(f"listening on {server.server_port}", flush=True)
    # The first process of a container gets no SIGTERM that it does not ask for. This ends it as a program ends.
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever()
