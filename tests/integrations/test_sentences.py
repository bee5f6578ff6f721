"""`encode` of an attached model of sentence-transformers gives what plain `encode` gives."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache
from gearcache.errors import AlreadyAttached, GearSpecError, OptionError, UnknownGear, UnsupportedMethod
from tests.support.sentence_models import (
    ARCHITECTURES,
    WORDS,
    attach_encode,
    needs_sentence_transformers,
    sentence_model,
)

pytestmark = needs_sentence_transformers

TEXTS = ["the", "the quick brown fox jumps", "tea near an old mill", ""]
SIZES: dict[str, Any] = {"batch": [4], "sequence": [8]}


def served(folder: Path, root: Path, *kind: Any, on_miss: str | None = None, **options: Any) -> tuple[Any, Any]:
    model = sentence_model(folder / "-".join(map(str, kind)), *kind, **options)
    config = gearcache.CompilerConfig(backend="eager", strict=True, on_miss=on_miss)
    return model, attach_encode(model, **SIZES, config=config, cache_dir=root)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all tests of this file: most need the same graphs."""
    return tmp_path_factory.mktemp("sentences")


def close(found: Any, expected: Any) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(torch.as_tensor(one), torch.as_tensor(other), atol=1e-5, rtol=0)


def test_texts_of_any_number_and_length_and_a_second_model(root: Path) -> None:
    model, attached = served(root, root / "cache")
    plain = copy.deepcopy(model)
    for texts in (TEXTS[:1], TEXTS, TEXTS[1], TEXTS[:3]):
        close(model.encode(texts), plain.encode(texts))
    for options in (
        {"normalize_embeddings": True},
        {"prompt": "old "},
        {"truncate_dim": 5},
        {"batch_size": 2},
        {"convert_to_tensor": True},
        {"output_value": "token_embeddings"},
    ):
        close(model.encode(TEXTS, **options), plain.encode(TEXTS, **options))
    for one, other in zip(model.encode(TEXTS, output_value=None), plain.encode(TEXTS, output_value=None), strict=True):
        assert list(one) == list(other)
        close([one[name] for name in one if name != "modality"], [other[name] for name in one if name != "modality"])
    assert (model.encode(TEXTS, precision="binary") == plain.encode(TEXTS, precision="binary")).all()
    assert len(model.encode([])) == 0
    assert attached.stats.eager_reasons == {}
    assert attached.stats.calls == 13
    again, bound_later = served(root, root / "cache")
    close(again.encode(TEXTS), plain.encode(TEXTS))
    assert (bound_later.stats.traces, bound_later.stats.eager_calls) == (0, 0)


@pytest.mark.thorough  # for a BERT the test above shows the same; what a token sees is the library's code
@pytest.mark.parametrize(
    ("architecture", "pooling", "side"),
    [
        ("bert", ("cls", "max", "lasttoken", "weightedmean", "mean_sqrt_len_tokens"), "right"),
        *((architecture, "mean", "right") for architecture in sorted(set(ARCHITECTURES) - {"bert"})),
        ("qwen3", "lasttoken", "left"),
    ],
)
def test_other_architectures_and_poolings(root: Path, architecture: str, pooling: Any, side: str) -> None:
    model, attached = served(root, root / "cache", architecture, pooling, on_miss="raise", padding_side=side)
    expected = [copy.deepcopy(model).encode(texts) for texts in (TEXTS, TEXTS[0])]
    close([model.encode(TEXTS), model.encode(TEXTS[0])], expected)
    assert (attached.stats.calls, attached.stats.eager_calls) == (2, 0)


def test_the_model_itself_serves_what_no_graph_serves(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    texts = [" ".join(WORDS)]
    model, attached = served(root, root / "cache")
    expected = copy.deepcopy(model).encode(texts)
    caplog.clear()
    for _ in range(2):
        close(model.encode(texts), expected)
    assert attached.stats.eager_reasons == {"size": 2}
    assert sum("runs without graphs: size: " in line for line in caplog.messages) == 1
    attached.detach()
    config = gearcache.CompilerConfig(backend="eager", on_miss="raise")
    strict = attach_encode(model, **SIZES, config=config, cache_dir=root / "cache")
    with pytest.raises(UnknownGear):
        model.encode(texts)
    assert strict.stats.eager_calls == 0


def test_a_text_of_which_no_token_is_shown_is_not_filled_up(root: Path) -> None:
    # All of its tokens are masked, so they see all others alike, filling included.
    model, attached = served(root, root / "cache", "bert", "cls", has_special=False)
    expected = copy.deepcopy(model).encode(TEXTS)
    close(model.encode(TEXTS), expected)
    assert attached.stats.eager_reasons == {"empty text": 1}


def test_queries_and_documents_and_a_module_that_tells_them_apart(root: Path) -> None:
    model, attached = served(root, root / "cache")
    plain = copy.deepcopy(model)
    close(model.encode_query(TEXTS), plain.encode_query(TEXTS))
    close(model.encode_document(TEXTS), plain.encode_document(TEXTS))
    assert (attached.stats.calls, attached.stats.eager_calls) == (2, 0)
    model.module_kwargs = {"1": ["task"]}
    model[1].forward_kwargs = {"task"}
    whole = type(model[1]).forward
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(model[1]), "forward", lambda self, features, task=None: whole(self, features))
        model.encode_query(TEXTS)
    assert attached.stats.eager_reasons == {"features": 1}


def test_a_pooling_that_leaves_out_prompts(root: Path) -> None:
    model, attached = served(root, root / "cache", "bert", "mean", include_prompt=False)
    plain = copy.deepcopy(model)
    close(model.encode(TEXTS, prompt="old "), plain.encode(TEXTS, prompt="old "))
    assert attached.stats.eager_reasons == {"prompt": 1}


def test_training_goes_on(root: Path) -> None:
    model, attached = served(root, root / "cache")
    made = model.preprocess(TEXTS)
    model(dict(made))["sentence_embedding"].sum().backward()
    assert attached.stats.eager_reasons == {"training": 1}
    assert next(model.parameters()).grad is not None


def test_a_model_that_was_given_another_module_is_not_filled_up(root: Path) -> None:
    from sentence_transformers.base.modules import Dense

    model, attached = served(root, root / "cache")
    # A softmax over the batch sees the rows that fill it up.
    model.append(Dense(16, 16, activation_function=torch.nn.Softmax(dim=0)))
    expected = copy.deepcopy(model).encode(TEXTS[:3])
    close(model.encode(TEXTS[:3]), expected)
    assert attached.stats.eager_reasons == {"modules": 1}


class Centred(torch.nn.Module):
    """A token sees all others in it, whatever the mask says."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(1, keepdim=True)


def _change(model: Any, how: str) -> None:
    if how == "hook":
        model[0].auto_model.embeddings.register_forward_hook(lambda module, inputs, output: Centred()(output))
    else:
        whole = model[1].forward
        model[1].forward = lambda features: whole(
            {**features, "token_embeddings": Centred()(features["token_embeddings"])}
        )


@pytest.mark.parametrize("how", ["hook", "own forward"])
def test_a_model_in_which_tokens_see_others_past_the_mask_is_not_filled_up(root: Path, how: str) -> None:
    from gearcache.integrations.sentence_transformers.layout import ModelClasses

    model, attached = served(root / f"inside-{how}", root / "cache")
    assert ModelClasses(model).is_known
    model.encode(TEXTS[:1])
    _change(model, how)
    # Attached now, its trace itself would tell whether the filling is seen, as in tests/ge_cache/padding.
    assert not ModelClasses(model).is_known
    found = model.encode(TEXTS[1])
    assert attached.stats.eager_reasons == {"modules": 1}
    attached.detach()
    close(found, model.encode(TEXTS[1]))


def test_copies_are_plain_models_and_detach_gives_the_model_back(root: Path) -> None:
    model, attached = served(root, root / "cache")
    pickle.loads(pickle.dumps(model)).encode(TEXTS)
    copy.deepcopy(model).encode(TEXTS)
    assert attached.stats.calls == 0
    with pytest.raises(AlreadyAttached):
        attach_encode(model, **SIZES)
    attached.detach()
    model.encode(TEXTS)
    assert attached.stats.calls == 0


def test_what_cannot_be_attached_is_refused(root: Path) -> None:
    model = sentence_model(root / "refused")
    with pytest.raises(UnsupportedMethod, match="must be a SentenceTransformer"):
        attach_encode(torch.nn.Linear(2, 2))
    with pytest.raises(GearSpecError, match="batch is"):
        attach_encode(model, batch=[0])
    with pytest.raises(OptionError, match="`on_miss` is 'compile'"):
        attach_encode(model, config=gearcache.CompilerConfig(on_miss="compile"))
    with pytest.raises(TypeError, match="takes no `gears`"):
        attach_encode(model, gears={})
