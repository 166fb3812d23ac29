"""usage: make_tiny_model.py FOLDER: what the tests of engines/vllm serve and load.

FOLDER/a, FOLDER/b   two sets of random weights of one tiny Qwen2 with tied embeddings, a tokenizer of printable ASCII and a ChatML
                     template that writes tools and calls as hermes does; each with probe.json
FOLDER/lora          a PEFT adapter of a, with the probe.json of a with the adapter merged
FOLDER/half          b without its key, value and up projections: an update that sends half of the fused groups

probe.json is {"ids": [P], "logprobs": [P-1]}: what transformers computes in float32 for each token but the first. Nothing
is trained. The same call writes the same files. Needs torch, transformers, tokenizers, safetensors (vllm_install.sh).
"""

import json
import pathlib
import shutil
import string
import sys

import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

RANK, ALPHA = 4, 8
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
TEMPLATE = """\
{%- if tools -%}
<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}

{% endif %}# Tools
<tools>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
</tools>
Answer with a call as <tool_call>{"name": NAME, "arguments": {...}}</tool_call>.<|im_end|>
{% endif -%}
{%- for message in messages -%}
{%- if message.role == 'system' and tools and loop.first -%}
{%- elif message.role == 'tool' -%}
<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% else -%}
<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}
</tool_call>
{%- endfor -%}
<|im_end|>
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
"""


def make_tokenizer():
    spell = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = [spell.pre_tokenize_str(c)[0][0] for c in string.printable[:95] + "\n"]
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    words = ["what is the weather in this city", "the sum of two and three is five", "user assistant system tool name arguments"]
    inner.train_from_iterator(words * 20, trainers.BpeTrainer(
        vocab_size=250, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"], initial_alphabet=alphabet,
        show_progress=False))
    inner.add_tokens([AddedToken(t, normalized=False) for t in ("<tool_call>", "</tool_call>")])  # not special: calls keep them
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|im_end|>", pad_token="<|endoftext|>",
                                   chat_template=TEMPLATE, model_max_length=1024, clean_up_tokenization_spaces=False)


def make_model(tokenizer, seed):
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=1024, tie_word_embeddings=True, initializer_range=0.08,
        bos_token_id=None, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)).float().eval()


@torch.no_grad()
def write_probe(folder, model):
    vocabulary = model.config.vocab_size
    ids = [(17 * i + i * i * 5 + 3) % vocabulary for i in range(48)]
    logits = model(torch.tensor([ids])).logits[0, :-1].double()
    logprobs = torch.log_softmax(logits, -1)[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]
    (folder / "probe.json").write_text(json.dumps({"ids": ids, "logprobs": [round(v, 7) for v in logprobs.tolist()]}) + "\n")


def write_adapter(folder, model):
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(7)
    tensors = {}
    for name, module in model.named_modules():
        if name.split(".")[-1] in TARGETS:
            down = torch.randn(RANK, module.in_features) * 0.1
            up = torch.randn(module.out_features, RANK) * 0.1
            tensors[f"base_model.model.{name}.lora_A.weight"], tensors[f"base_model.model.{name}.lora_B.weight"] = down, up
            module.weight.data += ALPHA / RANK * up @ down
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": ALPHA, "lora_dropout": 0.0, "bias": "none",
        "target_modules": TARGETS, "base_model_name_or_path": "", "inference_mode": True}, indent=1) + "\n")


def main(root):
    tokenizer = make_tokenizer()
    for name, seed in (("a", 1), ("b", 2)):
        model = make_model(tokenizer, seed)
        model.generation_config.eos_token_id = tokenizer.eos_token_id
        model.save_pretrained(root / name)
        tokenizer.save_pretrained(root / name)
        write_probe(root / name, model)
        if name == "a":
            write_adapter(root / "lora", model)  # merges it into the model
            write_probe(root / "lora", model)
    shutil.copytree(root / "a", root / "half", dirs_exist_ok=True)
    a, b = (load_file(root / name / "model.safetensors") for name in ("a", "b"))
    save_file({k: v for k, v in b.items() if "k_proj" not in k and "v_proj" not in k and "up_proj" not in k},
              root / "half" / "model.safetensors", {"format": "pt"})
    shutil.copy(root / "b" / "probe.json", root / "half" / "probe.json")
    assert a.keys() == b.keys()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1])) if len(sys.argv) == 2 else sys.exit(__doc__)
