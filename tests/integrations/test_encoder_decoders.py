"""`generate` of an attached encoder-decoder gives what plain `generate` gives, its encoder from graphs too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

import gearcache
from gearcache.errors import UnknownGear, UnsupportedMethod
from gearcache.integrations.transformers import AttachedModel, attach_generate
from tests.support.language_models import T5_SIZES, language_model, left_padded, right_padded, tokens
from tests.support.relaunch import run_python
from tests.support.sampled import chosen

SERVED: dict[str, dict[str, Any]] = {
    "one prompt": {"input_ids": tokens(1, 5)},
    "padding on the right": {"input_ids": tokens(3, 9), "attention_mask": right_padded(3, 9)},
    "padding on the left": {"input_ids": tokens(3, 9), "attention_mask": left_padded(3, 9)},
    "beams": {"input_ids": tokens(2, 9), "num_beams": 2},
    "sampling": {"input_ids": tokens(1, 8), "do_sample": True, "num_return_sequences": 3},
    "words to begin with": {"input_ids": tokens(2, 7), "decoder_input_ids": tokens(2, 4, 3)},
}
#: Calls of which the model itself serves the decoder, the encoder, or both; and the argument that is why.
UNSERVED: dict[str, tuple[str, dict[str, Any]]] = {
    "a prompt above all sizes": ("input_ids", {"input_ids": tokens(2, 17)}),
    "a batch above all sizes": ("input_ids", {"input_ids": tokens(5, 7)}),
    "past the last slot": ("max_length", {"input_ids": tokens(1, 5), "min_new_tokens": 30, "max_new_tokens": 30}),
    "a mask of the decoder": (
        "decoder_attention_mask",
        {"decoder_input_ids": tokens(2, 4), "input_ids": tokens(2, 5), "decoder_attention_mask": left_padded(2, 4)},
    ),
    "no cache": ("use_cache", {"input_ids": tokens(2, 5), "use_cache": False}),
}
#: One of each way to make positions, of which other tests have T5's; the others were tried by hand
#: (docs/transformers.md).
FAMILIES = chosen(("bart", "m2m_100", "mt5"), ("bart", "m2m_100"))
#: What a new process runs.
RELAUNCHED = """
import json, sys
from pathlib import Path
from tests.integrations.test_encoder_decoders import FAMILIES, served
print(json.dumps({family: served(family, Path(sys.argv[1])) for family in FAMILIES}))
"""


def generated(model: Any, **arguments: Any) -> list[Any]:
    torch.manual_seed(7)
    found = model.generate(**{"max_new_tokens": 10, "do_sample": False, **arguments})
    return found.tolist()  # type: ignore[no-any-return]


def attached_to(model: Any, root: Path, on_miss: str = "eager", **sizes: Any) -> AttachedModel:
    config = gearcache.CompilerConfig(backend="eager", strict=True, on_miss=on_miss)
    return attach_generate(model, **{**T5_SIZES, **sizes}, config=config, cache_dir=root)


@pytest.fixture(scope="module")
def root(t5_entries: Path) -> Path:
    attached = attached_to(language_model("t5"), t5_entries)
    attached.warm()
    assert {name: len(method.stats.gears) for name, method in attached.methods.items()} == {
        "encode": 4,
        "begin": 4,
        "decode": 4,
    }
    return t5_entries


@pytest.fixture
def attached(root: Path) -> Iterator[AttachedModel]:
    found = attached_to(language_model("t5"), root)
    yield found
    assert found.stats.traces == 0, found.explain()


@pytest.mark.parametrize("name", SERVED)
def test_served_calls_give_what_plain_generate_gives(attached: AttachedModel, name: str) -> None:
    assert generated(attached.model, **SERVED[name]) == generated(language_model("t5"), **SERVED[name])
    assert attached.stats.eager_reasons == {}
    assert all(method.stats.calls for method in attached.methods.values())


@pytest.mark.parametrize("name", UNSERVED)
def test_unserved_calls_run_without_graphs_or_raise(attached: AttachedModel, root: Path, name: str) -> None:
    argument, call = UNSERVED[name]
    assert generated(attached.model, **call) == generated(language_model("t5"), **call)
    assert set(attached.stats.eager_reasons) == {argument}
    with pytest.raises(UnknownGear, match=f"argument `{argument}` is "):
        generated(attached_to(language_model("t5"), root, "raise").model, **call)


def test_detach_restores_model_and_encoder(root: Path) -> None:
    model = language_model("t5")
    before = dict(vars(model)), dict(vars(model.encoder))
    attached = attached_to(model, root)
    assert vars(model.encoder) != before[1]
    hidden = model.encoder(tokens(9, 30)).last_hidden_state  # outside of `generate`
    attached.detach()
    assert (vars(model), vars(model.encoder)) == before
    assert torch.equal(model.encoder(tokens(9, 30)).last_hidden_state, hidden)


def test_encoders_that_were_not_tried_are_refused() -> None:
    model = language_model("t5")
    model.config.model_type = "bigbird_pegasus"
    with pytest.raises(UnsupportedMethod, match=r"served are: bart, .*, umt5; this is a bigbird_pegasus"):
        attach_generate(model)


def served(family: str, root: Path) -> dict[str, Any]:
    """What an attached model of a family gives, and what its graphs cost."""
    attached = attached_to(language_model(family), root, "raise", batch=[4], prompt=[16])
    texts = [generated(attached.model, **call) for call in SERVED.values()]
    return {"texts": texts, "traces": attached.stats.traces, "compiles": attached.stats.compiles}


@pytest.mark.slow
@pytest.mark.thorough  # the tests above have a T5
def test_every_family_gives_what_plain_generate_gives(tmp_path: Path) -> None:
    models = {family: language_model(family) for family in FAMILIES}
    expected = {family: [generated(model, **call) for call in SERVED.values()] for family, model in models.items()}
    assert len({json.dumps(texts) for texts in expected.values()}) == len(FAMILIES)
    for traces, found in (
        (3, {family: served(family, tmp_path) for family in FAMILIES}),
        (0, run_python(RELAUNCHED, str(tmp_path))),
    ):
        wanted = {"traces": traces, "compiles": traces}
        assert found == {family: {"texts": expected[family], **wanted} for family in FAMILIES}
