# SPDX-License-Identifier: Apache-2.0
"""The kernels of others that bench/compare measures against: FlashInfer, cuDNN and FA2 through torch, FlexAttention.

Each is a Peer made of (torch, batch, row). One that cannot run here raises Absent. Nothing is compiled with nvcc while
rows are measured: FlashInfer's modules are built by `build`, carried as packed files, and used through `use`.
"""

import lzma
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import rows as table
from flashinfer_peers import (
    BatchAttention,
    BatchPod,
    Cascade,
    FlashInfer,
    FlashInferDecode,
    FlashInferDecodeCuda,
    FlashInferFa2,
    FlashInferFa3,
    FlashInferPagedFa3,
)
from peer import Absent, Peer, flashinfer

ARCH = "9.0a"
PACKED_BYTES = 16 << 20


class Dense(Peer):
    """Peers that take [batch][head][token][dim]: all requests of a prefill are equally long."""

    plans = False

    def __init__(self, torch, batch, row):
        self.torch, self.row = torch, row
        shape, count = batch.shape, len(batch.shape.kv_lens)
        self.dense = [
            tuple(x.unflatten(0, (count, shape.kv_lens[0])).transpose(1, 2) for x in (pool.q, pool.k, pool.v))
            for pool in batch.pools
        ]
        self.grouped = shape.q_heads != shape.kv_heads

    def attend(self, q, k, v) -> Any:
        raise NotImplementedError

    def launch(self, pool):
        self.attend(*self.dense[pool])

    def output(self, pool):
        return self.attend(*self.dense[pool]).transpose(1, 2).flatten(0, 1)


class TorchAttention(Dense):
    backend = ""

    def attend(self, q, k, v):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        attend = self.torch.nn.functional.scaled_dot_product_attention
        with sdpa_kernel(getattr(SDPBackend, self.backend)):
            return attend(q, k, v, is_causal=self.row.shape.causal, enable_gqa=self.grouped)


class CuDnn(TorchAttention):
    name = "cuDNN"
    backend = "CUDNN_ATTENTION"


class TorchFa2(TorchAttention):
    name = "torch FA2"
    backend = "FLASH_ATTENTION"


class Flex(Dense):
    """FlexAttention, compiled by torch before the first timed launch."""

    name = "FlexAttention"

    def __init__(self, torch, batch, row):
        from torch.nn.attention import flex_attention as flex

        super().__init__(torch, batch, row)
        cap = 30.0
        scores = {
            "plain": None,
            "soft_cap": lambda score, b, h, q, k: cap * torch.tanh(score / cap),
        }
        if row.variant not in scores or not row.shape.causal:
            raise Absent(f"FlexAttention has no twin of {row.variant} here")
        length = row.shape.kv_lens[0]
        mask = flex.create_block_mask(lambda b, h, q, k: q >= k, None, None, length, length, device="cuda")
        self.compiled = torch.compile(flex.flex_attention, dynamic=False)
        self.options = {"score_mod": scores[row.variant], "block_mask": mask, "enable_gqa": self.grouped}

    def attend(self, q, k, v):
        return self.compiled(q, k, v, **self.options)


PEERS = {
    peer.name: peer
    for peer in (
        FlashInferFa2,
        FlashInferFa3,
        FlashInferPagedFa3,
        BatchPod,
        FlashInferDecode,
        FlashInferDecodeCuda,
        BatchAttention,
        Cascade,
        CuDnn,
        TorchFa2,
        Flex,
    )
}


def versions(torch):
    """What the rows of a run were measured with, of the peers' side."""
    found = {"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    try:
        found["flashinfer"] = flashinfer().__version__
    except Absent:
        found["flashinfer"] = None
    return found


def module_folder(folder):
    """Modules fit one version of FlashInfer and one architecture."""
    return pathlib.Path(folder) / f"flashinfer-{flashinfer().__version__}-{ARCH}"


def prepare_environment(scratch, may_compile):
    """To be called before FlashInfer is first imported: it reads these then."""
    if "flashinfer" in sys.modules:
        raise table.Refused("FlashInfer was imported before its environment was set")
    os.environ["FLASHINFER_WORKSPACE_BASE"] = str(scratch)
    os.environ["FLASHINFER_CUDA_ARCH_LIST"] = ARCH
    os.environ.setdefault("MAX_JOBS", str(os.cpu_count()))
    if may_compile:
        os.environ.pop("FLASHINFER_DISABLE_JIT", None)
    else:
        os.environ["FLASHINFER_DISABLE_JIT"] = "1"


def use(folder, scratch):
    """Unpacks the modules of `folder` to where FlashInfer looks for modules built ahead; returns their names."""
    flashinfer()
    from flashinfer.jit import env

    place = pathlib.Path(scratch) / "modules"
    names = []
    for packed in sorted(module_folder(folder).glob("*.so.xz")):
        name = packed.name.removesuffix(".so.xz")
        (place / name).mkdir(parents=True)
        (place / name / f"{name}.so").write_bytes(lzma.decompress(packed.read_bytes()))
        names.append(name)
    if not names:
        raise table.Refused(f"{module_folder(folder)} holds no module (bench/compare --build-peers)")
    env.FLASHINFER_AOT_DIR = place
    return names


def pack(built, folder):
    """Strips and packs every module below `built` into `folder`; returns [(file, bytes)]."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for module in sorted(pathlib.Path(built).glob("*/*.so")):
        if shutil.which("strip"):
            subprocess.run(["strip", "--strip-unneeded", module], check=True)
        packed = folder / f"{module.name}.xz"
        packed.write_bytes(lzma.compress(module.read_bytes(), preset=6))
        written.append((packed.name, packed.stat().st_size))
    return written


def build(torch, chosen, folder, make_batch):
    """Builds what the FlashInfer peers of the rows need, by running each once on a small batch, and packs it."""
    flashinfer()
    from flashinfer.jit import env

    done = set()
    for row in chosen:
        for name in row.peers:
            peer = PEERS.get(name)
            shape = row.shape
            heads = (shape.head_dim, shape.head_dim_vo, shape.q_heads // shape.kv_heads)
            key = (name, *heads, shape.causal, row.variant, shape.kv_dtype)
            if peer is None or not issubclass(peer, FlashInfer) or key in done:
                continue
            done.add(key)
            batch = make_batch(shape)
            peer(torch, batch, row).launch(0)
            torch.cuda.synchronize()
            print(f"built for {row.id}: {name}", flush=True)
    return pack(env.FLASHINFER_JIT_DIR, module_folder(folder))
