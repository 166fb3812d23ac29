"""usage: gloo_trainer.py PORT WORLD TIMEOUT: rank 0 of the process group of agentfly_transfer.py, for a test: it says "joined", then for
each chunk on standard input (8 bytes of size, little-endian, and the bytes) broadcasts it and says "sent"."""

import sys
from datetime import timedelta

import torch
from torch.distributed import BroadcastOptions, PrefixStore, ProcessGroupGloo, TCPStore

port, world, timeout = int(sys.argv[1]), int(sys.argv[2]), timedelta(seconds=float(sys.argv[3]))
store = TCPStore("127.0.0.1", port, None, True, timeout, wait_for_workers=False)
store.wait([f"agentfly/state/{i}" for i in range(1, world)], timeout)
options = ProcessGroupGloo._Options()
options._timeout, options._devices = timeout, [ProcessGroupGloo.create_device(hostname="127.0.0.1")]
group = ProcessGroupGloo(PrefixStore("agentfly/gloo", store), 0, world, options)
print("joined", flush=True)


def broadcast(data):
    o = BroadcastOptions()
    o.rootRank, o.rootTensor = 0, 0
    group.broadcast([torch.frombuffer(bytearray(data), dtype=torch.uint8)], o).wait()


while head := sys.stdin.buffer.read(8):
    broadcast(head)
    size = int.from_bytes(head, "little")
    if size > 0:
        broadcast(sys.stdin.buffer.read(size))
    print("sent", flush=True)
