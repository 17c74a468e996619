"""Answers recorded from other servers, without ids and times, served on loopback.

vllm: vLLM 0.32.0. llama.cpp: its own server, build 11549. llama-cpp-python: its server, 0.3.36.
"""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODEL = "/models/tiny.gguf"
MODELS = {
    "vllm": {
        "object": "list",
        "data": [
            {"id": MODEL, "owned_by": "vllm", "root": MODEL, "parent": None, "max_model_len": 1024}
        ],
    },
    "llama.cpp": {
        "models": [{"name": MODEL, "model": MODEL, "capabilities": ["completion"]}],
        "object": "list",
        "data": [
            {
                "id": MODEL,
                "aliases": [MODEL],
                "owned_by": "llamacpp",
                "meta": {"n_vocab": 4096, "n_ctx": 1024, "n_ctx_train": 2048, "ftype": "F16"},
            }
        ],
    },
    "llama-cpp-python": {"object": "list", "data": [{"id": MODEL, "owned_by": "me"}]},
}
NOT_FOUND = {"detail": "Not Found"}
NO_IDS = {"error": {"message": "Input should be a valid string", "type": "internal_server_error"}}


def tokens_of(body):
    """The prompt tokens of a request. A word is two tokens here."""
    prompt = body.get("prompt")
    if prompt is None:
        prompt = " ".join(each["content"] for each in body["messages"])
    return 2 * len(prompt.split()) if isinstance(prompt, str) else len(prompt)


def usage_of(kind, body):
    count, asked = tokens_of(body), body["max_tokens"]
    usage = {"prompt_tokens": count, "completion_tokens": asked, "total_tokens": count + asked}
    return usage | ({"prompt_tokens_details": {"cached_tokens": 3}} if kind == "llama.cpp" else {})


def events_of(kind, body):
    """The events of a stream."""
    asked, wants = body["max_tokens"], body.get("stream_options", {}).get("include_usage")
    if "messages" in body:
        head = {"role": "assistant"}
        head |= {"vllm": {"content": ""}, "llama.cpp": {"content": None}}.get(kind, {})
        yield {"choices": [{"index": 0, "delta": head, "finish_reason": None}]}
        pieces = [{"delta": {"content": " a"}}] * asked
        last = {"delta": {}}
    else:
        pieces, last = [{"text": " a", "logprobs": None}] * asked, {"text": "", "logprobs": None}
    for at, piece in enumerate(pieces):
        is_last = kind == "vllm" and at == asked - 1  # vLLM puts the reason on the last token
        yield {"choices": [{"index": 0, **piece, "finish_reason": "length" if is_last else None}]}
    usage = {"usage": usage_of(kind, body)} if wants and kind != "llama-cpp-python" else {}
    beside = usage if kind == "llama.cpp" and "prompt" in body else {}
    if kind != "vllm":
        yield {"choices": [{"index": 0, **last, "finish_reason": "length"}], **beside}
    if usage and not beside:
        yield {"choices": [], **usage}


class Handler(BaseHTTPRequestHandler):
    """One connection. A subclass sets the kind and keeps the request bodies."""

    kind, heard, protocol_version = "vllm", (), "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise a body, sent after its headers, waits 40 ms

    def do_GET(self):
        self._whole(200, MODELS[self.kind])

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.heard.append(body)
        if self.path == "/tokenize":
            self._tokenize(body)
        elif self.kind == "llama-cpp-python" and not isinstance(body.get("prompt", ""), str):
            self._whole(500, NO_IDS)
        elif body["stream"]:
            self._stream(body)
        else:
            self._whole(200, {"choices": [{"text": " a"}], "usage": usage_of(self.kind, body)})

    def _tokenize(self, body):
        field = {"vllm": "prompt", "llama.cpp": "content"}.get(self.kind)
        if field is None:
            self._whole(404, NOT_FOUND)
        elif field in body:
            self._whole(200, {"tokens": list(range(5, 5 + len(body[field].split())))})
        elif self.kind == "llama.cpp":
            self._whole(200, {"tokens": []})
        else:
            self._whole(400, {"error": {"message": "no prompt"}})

    def _stream(self, body):
        said = [f"data: {json.dumps(each)}\n\n" for each in events_of(self.kind, body)]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for each in [*said, "data: [DONE]\n\n", ""]:
            data = each.encode()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _whole(self, status, plain):
        data = json.dumps(plain).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *ignored):
        pass


@contextmanager
def recorded(kind):
    """Yields the URL of the server and the list of request bodies."""
    heard = []
    handler = type("Kind", (Handler,), {"kind": kind, "heard": heard})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", heard
    finally:
        server.shutdown()
        thread.join(30)
        server.server_close()
