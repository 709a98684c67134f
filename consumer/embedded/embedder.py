"""A small embedding server for a Hindsight without a model: texts are similar if they share words.

It implements the part of text-embeddings-inference that Hindsight uses: `GET /info`, `POST /embed`.
Run it with a port: `python -m consumer.embedded.embedder 8081`.
"""

import json
import math
import re
import sys
from hashlib import blake2b
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DIMENSIONS = 384


def embed(text: str) -> list[float]:
    """The unit vector of a text's words, each hashed to a dimension; the first axis for a text without words."""
    vector = [0.0] * DIMENSIONS
    for word in re.findall(r"\w+", text.lower()):
        vector[int.from_bytes(blake2b(word.encode(), digest_size=4).digest()) % DIMENSIONS] += 1.0
    norm = math.sqrt(sum(value * value for value in vector))
    if norm == 0:
        vector[0] = norm = 1.0
    return [value / norm for value in vector]


class Handler(BaseHTTPRequestHandler):
    """The two routes."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """`/info`: the model."""
        self._answer({"model_id": "words-hashed", "max_input_length": 8192})

    def do_POST(self) -> None:
        """`/embed`: one vector for each input."""
        inputs = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["inputs"]
        self._answer([embed(text) for text in ([inputs] if isinstance(inputs, str) else inputs)])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Log nothing."""

    def _answer(self, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def main() -> None:
    """Serve on 127.0.0.1 until the process ends."""
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()


if __name__ == "__main__":
    main()
