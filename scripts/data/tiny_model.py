"""Writes examples/tiny/model and examples/tiny/model_vllm: random Llamas of two layers with a vocabulary of 22 tokens, as
Hugging Face folders. The second has heads of 32, the smallest that vLLM computes with on a CPU.

A call and an answer are one token each, so that a policy that knows nothing finds them by chance. Every weight is drawn
with the seed below; nothing is trained here. The weights are small enough that such a policy is close to uniform (2.8 of
3.1 nats), and no token is a padding token: transformers would set its embedding to 0, where the gradient of an RMSNorm is
1,000 times what it is elsewhere, and clipping that norm scales down the gradients of all other weights with it.

Needs torch, transformers, tokenizers and safetensors (scripts/goldens/venv.sh makes such an environment). Run from the
repository: python scripts/data/tiny_model.py
"""

import json
import pathlib

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

SEED = 1
FOLDERS = pathlib.Path(__file__).resolve().parents[2] / "examples" / "tiny"
HEADS = {"model": (4, 2), "model_vllm": (2, 1)}  # query heads, key and value heads
EXPRESSIONS = ["1+1", "1+2", "2+2", "2+3"]
RESULTS = ["2", "3", "4", "5"]
SPECIAL = ["<|user|>", "<|assistant|>", "<|end|>"]
TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def tokenizer():
    vocabulary = ["<unk>", *RESULTS]
    plain = ["<result>", "</result>", *EXPRESSIONS]
    plain += [f"<calculator>{e}</calculator>" for e in EXPRESSIONS] + [f"<answer>{r}</answer>" for r in RESULTS]
    added = []
    for i, text in enumerate(SPECIAL + plain):
        added.append({"id": len(vocabulary) + i, "content": text, "single_word": False, "lstrip": False,
                      "rstrip": False, "normalized": False, "special": text in SPECIAL})
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": "",
                  "end_of_word_suffix": "", "fuse_unk": True, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {t: i for i, t in enumerate(vocabulary)}, "merges": []},
    }, len(vocabulary) + len(added), {a["content"]: a["id"] for a in added}


def write(folder, name, value):
    (folder / name).write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def main():
    for name, (heads, kv_heads) in HEADS.items():
        make(FOLDERS / name, heads, kv_heads)


def make(folder, heads, kv_heads):
    folder.mkdir(parents=True, exist_ok=True)
    tok, size, ids = tokenizer()
    torch.manual_seed(SEED)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=size, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=heads,
        num_key_value_heads=kv_heads, max_position_embeddings=256, tie_word_embeddings=True, initializer_range=0.1,
        bos_token_id=None, eos_token_id=ids["<|end|>"], pad_token_id=None))
    model.save_pretrained(folder)
    write(folder, "tokenizer.json", tok)
    write(folder, "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, "model_max_length": 256,
        "eos_token": "<|end|>", "pad_token": "<unk>", "unk_token": "<unk>", "chat_template": TEMPLATE})

    t = AutoTokenizer.from_pretrained(folder)
    chat = [{"role": "user", "content": "1+2"}, {"role": "assistant", "content": "<calculator>1+2</calculator>"},
            {"role": "user", "content": "<result>3</result>"}, {"role": "assistant", "content": "<answer>3</answer>"}]
    text = t.apply_chat_template(chat, tokenize=False)
    ids = t(text).input_ids
    print(text, ids)
    assert len(ids) == 14 and 0 not in ids and t.decode(ids) == text
    AutoModelForCausalLM.from_pretrained(folder)(torch.tensor([ids]))


if __name__ == "__main__":
    main()
