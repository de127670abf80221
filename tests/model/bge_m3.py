"""A folder in the layout of BAAI/bge-m3 with random weights, and its sparse vectors computed plainly."""

import json
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaModel

SENTENCES = [
    "A lock keeps two threads from changing the same value at once.",
    "Threads wait for the lock, and the lock waits for no thread.",
    "Compress a file with gzip and read the compressed file again.",
    "Eine Datei lesen, eine Datei schreiben und die Datei schliessen.",
    "The date of a file is the time at which the file was written.",
    "Parse a date, format the date, and add a day to it.",
]
ROLES = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "cls_token": "<s>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
    "mask_token": "<mask>",
}


def unigram_tokenizer() -> Tokenizer:
    """A sentencepiece-like tokenizer with the special tokens of XLM-RoBERTa at their ids."""
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    words = sorted({word for sentence in SENTENCES for word in sentence.lower().split()})
    pieces = [(f"\u2581{word[:4]}", -4.0) for word in words] + [(word[4:], -6.0) for word in words if word[4:]]
    pieces += [(letter, -12.0) for letter in sorted(set("".join(SENTENCES)) - {" "})] + [("\u2581", -9.0)]
    scores = {piece: score - number / 1000 for number, (piece, score) in enumerate(pieces)}  # without ties
    vocabulary = [*((name, 0.0) for name in specials), *scores.items()]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in [*specials, "<mask>"]])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return tokenizer


def bge_m3_folder(folder: Path, *, pickled: bool = False) -> Path:
    """Write the files of BAAI/bge-m3; with ``pickled``, the backbone is ``pytorch_model.bin`` as published."""
    backend = unigram_tokenizer()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **ROLES)
    config = XLMRobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=66,
        type_vocab_size=1,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = XLMRobertaModel(config)  # with a pooling layer, which the sparse head does not use
        for parameter in model.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
        sparse, multi = torch.nn.Linear(32, 1), torch.nn.Linear(32, 32)
        sparse.bias.data.fill_(0.1)
    model.save_pretrained(folder)
    if pickled:
        (folder / "model.safetensors").unlink()
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    torch.save(sparse.state_dict(), folder / "sparse_linear.pt")
    torch.save(multi.state_dict(), folder / "colbert_linear.pt")
    backend.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "XLMRobertaTokenizer", "model_max_length": 8192, **ROLES}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "special_tokens_map.json").write_text(json.dumps(ROLES))
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def lexical_weights(folder: Path, text: str, length: int) -> dict[int, float]:
    """The sparse vector of one text, written out: relu of the layer per token, the largest weight per token id."""
    model = XLMRobertaModel.from_pretrained(folder).eval()
    linear = torch.nn.Linear(32, 1)
    linear.load_state_dict(torch.load(folder / "sparse_linear.pt", weights_only=True))
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), **ROLES)
    batch = tokenizer(text, truncation=True, max_length=length, return_tensors="pt")
    with torch.no_grad():
        states = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state
        values = torch.relu(linear(states))[0, :, 0].tolist()
    excluded = {tokenizer.convert_tokens_to_ids(name) for name in ("<s>", "</s>", "<pad>", "<unk>")}
    found: dict[int, float] = {}
    for number, value in zip(batch["input_ids"][0].tolist(), values, strict=True):
        if number not in excluded and value > found.get(number, 0.0):
            found[number] = value
    return found
