"""usage: packing.py golden FOLDER   write FOLDER/tensors.safetensors and FOLDER/golden.json
       packing.py check TENSORS FOLDER…  compare packings of those tensors with vLLM's own, byte for byte: a line each

Runs vLLM 0.32.0's own code on the CPU (scripts/vllm_install.sh prints the environment): the producer and the consumer of packed
NCCL broadcasts, with a list in the place of the process group and nothing in that of the CUDA streams, and the data classes
of its requests. A FOLDER of a check holds update_info.json, init_info.json, limit (bytes) and chunk-0, chunk-1, …
"""

import contextlib
import hashlib
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from vllm.distributed.weight_transfer import nccl_engine, packed_tensor
from vllm.distributed.weight_transfer.nccl_common import NCCLWeightTransferInitInfo, worker_init_payload

LIMITS = [1, 64, 100, 1000, 4096, 1 << 20]  # bytes; the first closes a chunk after every tensor, the last never

# Nothing of CUDA is left in the two functions but these.
packed_tensor._get_streams = lambda device, count: tuple(type("Stream", (), {"synchronize": lambda self: None})() for _ in range(count))
torch.cuda.stream = lambda stream: contextlib.nullcontext()
torch.accelerator.current_device_index = lambda: 0


class Group:
    """Keeps what is broadcast, or hands out what was."""

    def __init__(self, chunks=None):
        self.chunks, self.sent = chunks, []

    def broadcast(self, tensor, src):
        assert src == 0 and tensor.dtype == torch.uint8, (src, tensor.dtype)
        if self.chunks is None:
            self.sent.append(bytes(tensor.tolist()))
        else:
            chunk = self.chunks.pop(0)
            assert tensor.numel() == len(chunk), f"vLLM waits for {tensor.numel()} bytes, the trainer sends {len(chunk)}"
            tensor.copy_(torch.frombuffer(bytearray(chunk), dtype=torch.uint8)) if chunk else None


def make_tensors():
    g = torch.Generator().manual_seed(3)
    random = lambda *shape: torch.randn(*shape, generator=g)
    return {
        "model.embed_tokens.weight": random(33, 7),                        # 924 bytes: straddles most limits
        "model.layers.0.input_layernorm.weight": random(7).bfloat16(),     # 14 bytes: what follows is not aligned
        "model.layers.0.mlp.gate_proj.weight": random(5, 7).half(),        # 70
        "model.layers.0.mlp.up_proj.weight": random(5, 7).half(),
        "model.layers.0.scale": torch.tensor(0.5),                         # no dimension
        "model.layers.0.self_attn.q_proj.weight": random(16, 16),          # 1024
        "model.layers.0.self_attn.k_proj.weight": random(4, 16).double(),  # 512
        "model.layers.0.self_attn.v_proj.weight": random(4, 16).double(),
        "model.layers.0.special": torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1e-45]),
        "model.nothing": torch.empty(0, 3),                                # no bytes
        "model.norm.weight": random(50).bfloat16(),                        # 100 bytes: a limit exactly
    }


def send(tensors, names, limit):
    group = Group()
    packed_tensor.packed_nccl_broadcast_producer(
        ((n, tensors[n]) for n in names), group, 0, lambda item: item[1], buffer_size_bytes=limit)
    return group.sent


def update_info(tensors, names):
    """As NCCLTrainerWeightTransferEngine.send_weights makes it."""
    return vars(nccl_engine.NCCLWeightTransferUpdateInfo(
        names=list(names), dtype_names=[str(tensors[n].dtype).split(".")[-1] for n in names],
        shapes=[list(tensors[n].shape) for n in names]))


def file_order(path):
    """Names by the place of their data, which is how the trainer lists them."""
    data = path.read_bytes()
    header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
    return [n for n in header if n != "__metadata__"]


def golden(folder):
    folder.mkdir(parents=True, exist_ok=True)
    tensors = make_tensors()
    save_file(tensors, folder / "tensors.safetensors")
    names = file_order(folder / "tensors.safetensors")
    (folder / "golden.json").write_text(json.dumps({
        "update_info": update_info(tensors, names),
        "chunks": {str(limit): [[len(c), hashlib.sha256(c).hexdigest()] for c in send(tensors, names, limit)] for limit in LIMITS},
    }, indent=1) + "\n")


def check(file, folder):
    tensors, limit = load_file(file), int((folder / "limit").read_text())
    info, init = (json.loads((folder / f"{n}_info.json").read_text()) for n in ("update", "init"))
    names = info["names"]
    assert sorted(names) == sorted(tensors), "the names are not the tensors'"
    assert info == update_info(tensors, names), "update_info differs from vLLM's"
    parsed = NCCLWeightTransferInitInfo(**init)  # checks the rendezvous
    assert worker_init_payload(parsed) == init, f"init_info differs from vLLM's: {worker_init_payload(parsed)}"
    assert parsed.packed and parsed.rank_offset == 1 and parsed.packed_buffer_size_bytes == limit, parsed
    got = [(folder / f"chunk-{i}").read_bytes() for i in range(len(list(folder.glob("chunk-*"))))]
    want = send(tensors, names, limit)
    assert len(got) == len(want), f"{len(got)} chunks, vLLM packs {len(want)}"
    for i, (a, b) in enumerate(zip(got, want)):
        assert a == b, f"chunk {i} differs from vLLM's: {len(a)} and {len(b)} bytes"
    received = []
    packed_tensor.packed_nccl_broadcast_consumer(
        ((n, (s, getattr(torch, d))) for n, d, s in zip(names, info["dtype_names"], info["shapes"])), Group(list(got)), 0,
        received.extend, buffer_size_bytes=limit, device="cpu")
    assert [n for n, _ in received] == names, "vLLM's consumer has other names"
    for name, tensor in received:
        want = tensors[name]
        assert tensor.dtype == want.dtype and tensor.shape == want.shape, name
        assert bytes(tensor.contiguous().view(-1).view(torch.uint8).tolist()) == bytes(want.contiguous().view(-1).view(torch.uint8).tolist()), name
    return f"{len(got)} chunks, {sum(map(len, got))} bytes: the same as vLLM's, and its consumer unpacks the same {len(names)} tensors"


if __name__ == "__main__":
    if sys.argv[1:2] == ["golden"] and len(sys.argv) == 3:
        golden(pathlib.Path(sys.argv[2]))
    elif sys.argv[1:2] == ["check"] and len(sys.argv) > 3:
        for folder in sys.argv[3:]:
            try:
                print(check(sys.argv[2], pathlib.Path(folder)))
            except AssertionError as error:
                print("different:", error)
    else:
        sys.exit(__doc__)
