"""Folders of sentence-transformers, in every layout, give the library's vectors, and our folders give ours there."""

import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sentence_transformers import SparseEncoder as Peer
from sentence_transformers.base.modules import Router, Transformer
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling

from lsr_prod.errors import ConfigError
from lsr_prod.model import SparseEncoder
from lsr_prod.search.query.sparse_query import TermWeights
from lsr_prod.storage.formats.sparse import SparseBatch
from lsr_prod.training.query_weights import reader_of
from tests.model.tiny import tiny_checkpoint, tiny_tokenizer

_PIECES = [*"aZé東ßİ\u200d🙂 \t.[]0\u200b\ufeff¼ﬁ", *(f" {'W' if i % 2 == 0 else 'w'}{i} " for i in range(1, 20))]
TEXTS = [
    "the thread lock of a file",
    "Parse A Date String",
    "[CLS] a [UNK] and [MASK] b",  # no padding token: the library's vector would depend on the other texts of a batch
    "Zürich 東京 naïve İstanbul ﬁle ¼ 🙂",
    "w1 W2 w3 " * 60,
    "a",
    *("".join(random.Random(seed).choices(_PIECES, k=seed * 7)) for seed in range(1, 14)),
]


def field_folder(shared_data: Path, name: str) -> Path:
    folder = shared_data.parent / "field" / name
    if not folder.exists() and not os.environ.get("CI"):
        pytest.skip(f"there is no {folder}")
    return folder


def ours(encoder: SparseEncoder, kind: str) -> np.ndarray:
    """Return vectors of the texts [n, V]; inference-free queries have the weights of the encoder."""
    if kind == "query" and encoder.card.inference_free:
        weights = TermWeights.learned(encoder.query_weights.numpy(), encoder.vocabulary)
        reader = reader_of(encoder)
        queries = [weights.weigh(reader.query(text).ids) for text in TEXTS]
        rows = [(query.ids, query.weights) for query in queries]
    else:
        batch: SparseBatch = encoder.encode(TEXTS, kind)
        rows = [batch.row(i) for i in range(len(TEXTS))]
    dense = np.zeros((len(TEXTS), encoder.card.vocabulary_size), np.float32)
    for row, (terms, values) in zip(dense, rows, strict=True):
        row[terms] = values
    return dense


def assert_equal(encoder: SparseEncoder, folder: Path) -> None:
    peer = Peer(str(folder), device="cpu", local_files_only=True)
    for kind, encode in (("query", peer.encode_query), ("document", peer.encode_document)):
        theirs = encode(TEXTS, convert_to_sparse_tensor=False).numpy()
        np.testing.assert_allclose(ours(encoder, kind), theirs, atol=1e-4, err_msg=kind)
        assert (theirs > 0).any(axis=1).sum() > len(TEXTS) / 2


def router(folder: Path, weights: torch.Tensor, *, frozen: bool = False, length: int = 12) -> Path:
    """Save a Router of a tiny checkpoint with the library."""
    checkpoint = tiny_checkpoint(folder / "checkpoint", "bert")
    tokenizer = tiny_tokenizer()
    tokenizer.model_max_length = length
    document = [Transformer(str(checkpoint), transformer_task="fill-mask"), SpladePooling()]
    query = SparseStaticEmbedding(tokenizer, weights, frozen=frozen)
    Peer(modules=[Router.for_query_document([query], document)], device="cpu").save(str(folder / "router"))
    return folder / "router"


def test_layout_of_version_5_keeps_length_and_casing(shared_data: Path, tmp_path: Path) -> None:
    folder = field_folder(shared_data, "st5_layout")
    encoder = SparseEncoder.load(folder)
    card = encoder.card
    assert (card.query_max_length, card.document_max_length, card.casing) == (16, 16, "lowercase")
    assert_equal(encoder, folder)
    encoder.save(tmp_path / "model")
    assert_equal(encoder, tmp_path / "model")


def test_router_gives_equal_vectors_before_and_after_save(shared_data: Path, tmp_path: Path) -> None:
    folder = field_folder(shared_data, "router")
    encoder = SparseEncoder.load(folder)
    card = encoder.card
    assert (card.query_encoder, card.query_special_tokens) == ("learned", "weighted")
    assert (card.query_max_length, card.document_max_length) == (66, 64)  # its queries have no special tokens
    assert_equal(encoder, folder)
    encoder.save(tmp_path / "model")
    assert_equal(encoder, tmp_path / "model")
    again = SparseEncoder.load(tmp_path / "model")
    assert again.card == card
    assert torch.equal(again.query_weights, encoder.query_weights)
    (tmp_path / "model" / "encoder_card.json").unlink()  # the files of sentence-transformers alone say the same
    bare = SparseEncoder.load(tmp_path / "model")
    assert (bare.card.query_max_length, bare.card.query_special_tokens) == (66, "weighted")
    assert_equal(bare, folder)


def test_models_of_every_kind_of_query_open_in_sentence_transformers(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(tmp_path / "checkpoint", "bert")
    fields = {"query_max_length": 9, "document_max_length": 24, "document_prompt": "w7 ", "casing": "lowercase"}
    for kind, more in (
        ("model", {"activation": "l0", "query_prompt": "w9 "}),
        ("learned", {"activation": "l0"}),
        ("idf", {}),
    ):
        encoder = SparseEncoder.load(checkpoint, query_encoder=kind, **fields, **more)
        if kind != "model":
            encoder.query_weights = torch.linspace(0, 3, encoder.card.vocabulary_size)
        digest = encoder.save(tmp_path / kind)
        assert_equal(encoder, tmp_path / kind)
        assert SparseEncoder.load(tmp_path / kind).save(tmp_path / f"{kind} again") == digest
        settings = json.loads((tmp_path / kind / "config_sentence_transformers.json").read_text())
        assert settings["requirements"]["sentence-transformers"]["specifier"] == (
            ">=6.0" if kind == "model" else ">=5.4"
        )


def set_first_weight(peer: Peer) -> None:
    peer[0].sub_modules["query"][0].weight.data[0] = 3.0


@pytest.mark.parametrize(
    ("kind", "length", "edit", "named"),
    [
        ("model", 16, lambda peer: peer.prompts.update(document="w7 "), "(document_prompt)"),
        ("model", 16, lambda peer: setattr(peer, "max_seq_length", 20), "(document_max_length)"),
        ("model", 24, lambda peer: setattr(peer[0], "query_length", 20), "(query_max_length)"),
        ("model", 16, lambda peer: setattr(peer, "max_active_dims", 5), "(max_terms)"),
        ("learned", 16, set_first_weight, "(query encoder)"),
        ("idf", 16, set_first_weight, "(query encoder)"),
        (
            "learned",
            16,
            lambda peer: setattr(peer[0].sub_modules["query"][0].tokenizer, "model_max_length", 20),
            "(query_max_length)",
        ),
        ("separate", 16, lambda peer: peer.eval(), "(query encoder)"),
    ],
)
def test_model_directory_that_the_library_changed_is_refused(
    kind: str, length: int, edit: Callable[[Any], None], named: str, tmp_path: Path
) -> None:
    checkpoint, folder = tiny_checkpoint(tmp_path / "checkpoint", "bert"), tmp_path / "model"
    fields = {} if kind == "separate" else {"query_encoder": kind}
    encoder = SparseEncoder.load(checkpoint, query_max_length=16, document_max_length=length, **fields)
    encoder = encoder.with_queries(SparseEncoder.load(checkpoint)) if kind == "separate" else encoder
    encoder.save(folder)
    peer = Peer(str(folder), device="cpu")
    edit(peer)
    peer.save(str(folder))
    with pytest.raises(ConfigError, match=f"than those of its card {re.escape(named)}; delete every encoder_card.json"):
        SparseEncoder.load(folder)
    for name in ("encoder_card.json", "query_weights.npy"):
        for path in folder.rglob(name):
            path.unlink()
    assert_equal(SparseEncoder.load(folder), folder)


@pytest.mark.parametrize("kind", ["model", "learned", "idf"])
def test_model_directory_that_the_library_saved_unchanged_is_read(kind: str, tmp_path: Path) -> None:
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "checkpoint", "bert"), query_encoder=kind)
    encoder.save(tmp_path / "model")
    Peer(str(tmp_path / "model"), device="cpu").save(str(tmp_path / "model"))
    assert SparseEncoder.load(tmp_path / "model").card == encoder.card


def test_queries_have_weight_1_before_training(tmp_path: Path) -> None:
    SparseEncoder.load(tiny_checkpoint(tmp_path / "checkpoint", "bert"), query_encoder="idf").save(tmp_path / "model")
    vector = Peer(str(tmp_path / "model"), device="cpu").encode_query("w1 w3 </s>", convert_to_sparse_tensor=False)
    assert vector.sum() == 2  # without the special token


def test_version_6_checks_the_requirement(tmp_path: Path) -> None:
    SparseEncoder.load(tiny_checkpoint(tmp_path / "checkpoint", "bert")).save(tmp_path / "model")
    change(tmp_path / "model", "config_sentence_transformers.json", requirements={"sentence-transformers": ">=99"})
    with pytest.raises(ImportError, match="sentence-transformers"):
        Peer(str(tmp_path / "model"), device="cpu")


def test_frozen_weights_of_the_library_are_loaded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    weights = torch.rand(97)
    weights[:8] = 0  # among them the special tokens
    folder = router(tmp_path, weights, frozen=True)
    encoder = SparseEncoder.load(folder)
    assert (encoder.card.query_special_tokens, encoder.card.query_max_length) == ("skipped", 14)
    assert "frozen query weights" in caplog.text
    assert_equal(encoder, folder)


def change(folder: Path, name: str, **values: Any) -> None:
    content = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(content | values))


TRANSFORMER, POOLING = "sentence_bert_config.json", "1_SpladePooling/config.json"
SETTINGS, ROUTER = "config_sentence_transformers.json", "router_config.json"


@pytest.mark.parametrize(
    ("name", "values"),
    [
        (TRANSFORMER, {"max_seq_length": 7}),
        (TRANSFORMER, {"query_length": 5}),
        (TRANSFORMER, {"document_length": 5, "max_seq_length": 9}),
        (TRANSFORMER, {"do_lower_case": True, "unpad_inputs": False, "model_args": {"attn_implementation": "eager"}}),
        (POOLING, {"activation_function": "log1p_relu"}),
        (SETTINGS, {"prompts": {"query": "w3 ", "document": None, "passage": "w5 "}, "default_prompt_name": "passage"}),
    ],
)
def test_settings_of_the_library_are_honored(name: str, values: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    SparseEncoder.load(tiny_checkpoint(tmp_path / "checkpoint", "bert")).save(folder)
    (folder / "encoder_card.json").unlink()
    change(folder, name, **values)
    assert_equal(SparseEncoder.load(folder), folder)


@pytest.mark.parametrize(
    ("name", "values", "match"),
    [
        (TRANSFORMER, {"max_seq_length": 0}, "its max_seq_length is 0"),
        (TRANSFORMER, {"query_length": "9"}, 'its query_length is "9"'),
        (TRANSFORMER, {"transformer_task": "feature-extraction"}, "transformer_task"),
        (TRANSFORMER, {"transformer_task": None}, "transformer_task"),
        (TRANSFORMER, {"modality_config": {"text": {"method": "forward", "method_output_name": "x"}}}, "modality"),
        (TRANSFORMER, {"processing_kwargs": {"text": {"max_length": 3}}}, "processing_kwargs"),
        (TRANSFORMER, {"query_expansion": {"length": 32}}, "query_expansion"),
        (TRANSFORMER, {"tokenizer_args": {"padding_side": "left"}}, "tokenizer_args"),
        (TRANSFORMER, {"config_kwargs": 3}, "config_kwargs"),
        (TRANSFORMER, {"tokenizer_name_or_path": "other"}, "tokenizer_name_or_path"),
        (POOLING, {"pooling_strategy": "sum"}, "pools by sum"),
        (POOLING, {"k": 8}, "sets k to 8"),
        (SETTINGS, {"max_active_dims": 0}, "its max_active_dims is 0"),
        (SETTINGS, {"similarity_fn_name": "cosine"}, "its similarity_fn_name is"),
        (SETTINGS, {"model_type": "SentenceTransformer"}, "its model_type is"),
    ],
)
def test_settings_that_cannot_be_honored_are_refused(
    name: str, values: dict[str, Any], match: str, tmp_path: Path
) -> None:
    SparseEncoder.load(tiny_checkpoint(tmp_path / "checkpoint", "bert")).save(tmp_path / "model")
    (tmp_path / "model" / "encoder_card.json").unlink()
    change(tmp_path / "model", name, **values)
    with pytest.raises(ConfigError, match=match):
        SparseEncoder.load(tmp_path / "model")


def pair_router(folder: Path, *, architecture: str = "distilbert", lowercase: bool = False) -> Path:
    """Save a Router of two tiny checkpoints with the library."""
    routes = []
    for name, length, activation in ((architecture, 11, "relu"), ("bert", 30, "log1p_relu")):
        checkpoint = tiny_checkpoint(folder / name, name)
        if lowercase and name != "bert":
            tiny_tokenizer(lowercase=True).save_pretrained(checkpoint)
        one = Transformer(str(checkpoint), transformer_task="fill-mask", max_seq_length=length)
        routes.append([one, SpladePooling(activation_function=activation)])
    peer = Peer(modules=[Router.for_query_document(*routes)], device="cpu", prompts={"query": "w3 ", "document": "w5 "})
    peer.save(str(folder / "pair"))
    return folder / "pair"


@pytest.mark.long
@pytest.mark.parametrize("lowercase", [False, True])
def test_router_of_two_encoders_gives_equal_vectors_before_and_after_save(lowercase: bool, tmp_path: Path) -> None:
    folder = pair_router(tmp_path, lowercase=lowercase)
    encoder = SparseEncoder.load(folder)
    assert encoder.queries is not None
    cards = encoder.card, encoder.queries.card
    assert [(card.query_encoder, card.activation) for card in cards] == [
        ("separate", "l0"),
        ("model", "log1p_relu"),
    ]
    assert (cards[0].document_max_length, cards[1].query_max_length, cards[1].query_prompt) == (30, 11, "w3 ")
    assert_equal(encoder, folder)
    digest = encoder.save(tmp_path / "model")
    assert_equal(encoder, tmp_path / "model")
    assert SparseEncoder.load(tmp_path / "model").save(tmp_path / "again") == digest
    for card in (tmp_path / "model").rglob("encoder_card.json"):
        card.unlink()  # the files of sentence-transformers alone say the same
    assert_equal(SparseEncoder.load(tmp_path / "model"), folder)


def test_pair_with_other_query_length_opens_in_version_6(tmp_path: Path) -> None:
    encoder = SparseEncoder.load(pair_router(tmp_path), query_max_length=7, query_prompt="w9 ")
    encoder.save(tmp_path / "model")
    assert_equal(encoder, tmp_path / "model")
    settings = json.loads((tmp_path / "model" / "config_sentence_transformers.json").read_text())
    assert settings["requirements"]["sentence-transformers"]["specifier"] == ">=6.0"


def test_router_with_one_encoder_in_both_routes_is_a_plain_model(tmp_path: Path) -> None:
    folder = router(tmp_path, torch.ones(97))
    config = json.loads((folder / ROUTER).read_text())
    config["structure"]["query"] = config["structure"]["document"]
    (folder / ROUTER).write_text(json.dumps(config))
    encoder = SparseEncoder.load(folder)
    assert (encoder.card.query_encoder, encoder.queries) == ("model", None)
    assert_equal(encoder, folder)


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda config: config["structure"].pop("query"), "its routes are document"),
        (lambda config: config["structure"].update(query=["none"]), "the route query has modules without a type"),
        (
            lambda config: config["parameters"].update(route_mappings={"('query', None)": "document"}),
            "maps other tasks",
        ),
        (lambda config: config.pop("types"), "no types and structure"),
        (
            lambda config: config["types"].update(document_1_SpladePooling="x.Normalize"),
            "modules are Transformer, Norm",
        ),
        (
            lambda config: config.update(
                types={"../q": "x.SparseStaticEmbedding"}, structure={"query": ["../q"], "document": []}
            ),
            "outside the folder",
        ),
    ],
)
def test_other_routers_are_refused(edit: Callable[[Any], Any], match: str, tmp_path: Path) -> None:
    folder = router(tmp_path, torch.ones(97))
    config = json.loads((folder / ROUTER).read_text())
    edit(config)
    (folder / ROUTER).write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=match):
        SparseEncoder.load(folder)


@pytest.mark.parametrize("problem", ["size", "negative", "nan", "key", "absent", "path", "tokenizer", "prompt"])
def test_query_weights_of_a_router_that_do_not_fit_are_refused(problem: str, tmp_path: Path) -> None:
    folder = router(tmp_path, torch.ones(97))
    query = folder / "query_0_SparseStaticEmbedding"
    values = {"size": torch.ones(96), "negative": -torch.ones(97), "nan": torch.full((97,), torch.nan)}
    if problem in values:
        save_file({"weight": values[problem]}, query / "model.safetensors")
    elif problem == "key":
        save_file({"other": torch.ones(97)}, query / "model.safetensors")
    elif problem == "absent":
        (query / "model.safetensors").unlink()
    elif problem == "path":
        change(query, "config.json", path="idf.json")
    elif problem == "prompt":
        change(folder, SETTINGS, prompts={"query": "w3 "})
    else:
        tiny_tokenizer(lowercase=True).save_pretrained(query)
    with pytest.raises(ConfigError, match=r"^(source|query_prompt): "):
        SparseEncoder.load(folder)


def test_limit_of_terms_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    SparseEncoder.load(tiny_checkpoint(tmp_path / "checkpoint", "bert")).save(folder)
    (folder / "encoder_card.json").unlink()
    change(folder, SETTINGS, max_active_dims=7)
    encoder = SparseEncoder.load(folder)
    assert (encoder.card.max_terms, encoder.card.most_terms) == (7, 7)
    assert_equal(encoder, folder)
    encoder.save(tmp_path / "again")
    assert_equal(SparseEncoder.load(tmp_path / "again"), tmp_path / "again")
