"""Executables that print what the real peers print, for the tests of the comparison. No real engine in any of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from forebay.bench.compare.processes import Command, PeerError
from forebay.bench.compare.turns import Turn

BENCH = """
import json, sys
a = dict(zip(sys.argv[1::2], sys.argv[2::2]))
n = int(a["-p"]) or int(a["-n"])
print(json.dumps([{"n_prompt": int(a["-p"]), "n_gen": int(a["-n"]), "n_depth": int(a["-d"]), "avg_ts": n + 0.5}]))
"""
BATCHED = """
import json, sys
a = sys.argv
rows = int(a[a.index("-npl") + 1])
print("")
print(json.dumps({"pp": 128, "tg": 32, "pl": rows, "speed_pp": 1.0, "speed_tg": rows * 10.0}))
"""
SERVER = """
import json, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

if "--version" in sys.argv:
    sys.stderr.write("version: fake 1\\n")
    sys.exit(0)

class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def reply(self, body, kind="application/json"):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.reply(json.dumps({"data": [{"id": "fake"}]}).encode())

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/tokenize":
            return self.reply(json.dumps({"tokens": asked["prompt"].split()}).encode())
        words = asked["max_tokens"] - SHORT_BY if asked["max_tokens"] > 8 else asked["max_tokens"]
        lines = [{"choices": [{"index": 0, "text": " a", "finish_reason": None}]}] * words
        lines.append({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": words}})
        self.reply("".join(f"data: {json.dumps(line)}\\n\\n" for line in lines).encode(), "text/event-stream")

port = int(sys.argv[sys.argv.index("--port") + 1])
ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
VLLM = """
import json, sys
if sys.argv[1] == "-c":
    print("9.9 2.0 fills")
elif sys.argv[1] == "-m":
    sys.exit("no server here")
else:
    print("INFO much is logged")
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        for row in json.loads(line)["rows"]:
            failed = {"failure": "too many"} if row["name"] == "decode-32" else {"value": 7.0, "seconds": 0.5}
            print(json.dumps({"row": row["name"]} | failed))
        print(json.dumps({"extras": {}}) + "\\n(worker) WARNING much is logged", flush=True)
"""
FAILING = """
import sys
sys.stderr.write("first line\\nthe model can't be read\\n")
sys.exit(3)
"""


def executable(path: Path, source: str) -> Path:
    """A Python program that can be started as `path`."""
    path.write_text(f"#!{sys.executable}\n{source}")
    path.chmod(0o755)
    return path


def llama_cpp(folder: Path, *, server: str = SERVER, short_by: int = 0) -> Path:
    """A folder with the three binaries; the server's answers are short by so many tokens."""
    executable(folder / "llama-bench", BENCH)
    executable(folder / "llama-batched-bench", BATCHED)
    executable(folder / "llama-server", server.replace("SHORT_BY", str(short_by)))
    return folder


def vllm(folder: Path) -> Path:
    """An interpreter."""
    return executable(folder / "python", VLLM)


class Scripted:
    """A side that measures what it is told, and fails a row in its second turn."""

    def __init__(self, name: str, rate: float, log: list[str], fails: str = "") -> None:
        self.name, self._rate, self._log, self._fails = name, rate, log, fails
        self._turns = 0
        self.closed = 0

    def describe(self) -> dict[str, Any]:
        return {"version": "1", "weights": "w", "server": "s"}

    def engine(self, rows: Any, turn: Turn) -> None:
        self._turns += 1
        self._log.append(f"{self.name}:{','.join(row.name for row in rows)}")
        failing = {self._fails: "it broke"} if self._turns == 2 and self._fails else {}
        turn.values |= {row.name: self._rate * self._turns for row in rows if row.name not in failing}
        turn.seconds |= dict.fromkeys(turn.values, 1.0)
        turn.failures |= failing
        turn.extras = {"gemm_gflops": 100.0, "float_gflops": 25.0, "read_gbps": 10.0}
        turn.extras |= {"layer_flops": 1e8, "head_flops": 1e7}
        turn.extras |= {"attention_flops": 0.0, "read_bytes": 1e8, "weight_bytes": 1e8, "kv_token_bytes": 1e4}
        turn.extras["parameters"] = 1e8

    def close(self) -> None:
        self.closed += 1

    def server(self, port: int) -> Command:
        raise PeerError("it has no server")

    def small_server(self, port: int) -> None:
        return None
