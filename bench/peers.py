# SPDX-License-Identifier: Apache-2.0
"""The kernels of others that bench/compare measures against: FlashInfer, cuDNN and FA2 through torch, FlexAttention.

Each is a Peer made of (torch, batch, row). One that cannot run here raises Absent. Nothing is compiled with nvcc while
rows are measured: FlashInfer's modules are built by `build`, carried as packed files, and used through `use`.
"""

import itertools
import lzma
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import rows as table
from variants import VARIANTS, WINDOW_TOKENS, four_of_five

ARCH = "9.0a"
WORKSPACE_BYTES = 512 << 20
PACKED_BYTES = 16 << 20


class Absent(Exception):
    """A peer that this machine does not have; the message says why."""


def flashinfer():
    try:
        import flashinfer as module
    except ImportError as error:
        raise Absent(f"no FlashInfer: {error}") from error
    return module


def or_absent(call):
    """The call's result; Absent where FlashInfer lacks a built module."""
    try:
        return call()
    except RuntimeError as error:
        if type(error).__name__ == "MissingJITCacheError":
            raise Absent("its module is not built (bench/compare --build-peers)") from error
        raise


class Peer:
    """What the rest of bench/ sees of a peer; bench/ours.py's Contender has the same."""

    name = ""
    plans = True  # whether there is anything to plan

    def plan(self) -> None:
        """Plans the batch; once before the first launch, then only to be timed."""

    def launch(self, pool: int) -> None:
        """What is timed."""
        raise NotImplementedError

    def output(self, pool: int) -> Any:
        """Launches; the output as [token][head][dim]."""
        raise NotImplementedError

    def close(self) -> None:
        """Gives back what torch does not manage."""


# What plan() takes for the variants that FlashInfer has itself. Its slopes of ALiBi and its RoPE (halves, base 10000)
# are those of bench/variants.py.
FLASHINFER_VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "soft_cap": {"logits_soft_cap": VARIANTS["soft_cap"].scalars["cap"]},
    "sliding_window": {"window_left": WINDOW_TOKENS - 1},
    "alibi": {"pos_encoding_mode": "ALIBI"},
    "rope_neox": {"pos_encoding_mode": "ROPE_LLAMA"},
    "custom_mask": {},
}


def dense_masks(torch, shape):
    """The masks of variants.packed_masks, one bool a pair."""
    masks = []
    for request, (queries, keys) in enumerate(zip(shape.qo_lens, shape.kv_lens, strict=True)):
        q_row, kv_pos = torch.arange(queries, device="cuda"), torch.arange(keys, device="cuda")
        masks.append(four_of_five(q_row[:, None], kv_pos[None, :], request).flatten())
    return torch.cat(masks)


class FlashInfer(Peer):
    """What FlashInfer's wrappers have in common."""

    def __init__(self, torch, batch, row):
        if row.variant not in FLASHINFER_VARIANTS:
            raise Absent(f"FlashInfer has no {row.variant} of its own")
        self.batch, self.row = batch, row
        self.types = {"q_data_type": torch.bfloat16, "kv_data_type": batch.pools[0].k.dtype}
        self.types |= FLASHINFER_VARIANTS[row.variant]
        self.workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")
        self.out = torch.empty_like(batch.pools[0].q)
        # On the host, as its own callers keep them, so that plan() waits for no copy from the device.
        self.qo_indptr = torch.tensor(batch.qo_indptr, dtype=torch.int32)
        self.kv_indptr = torch.tensor(batch.kv_indptr, dtype=torch.int32)
        shape = batch.shape
        self.heads = (shape.q_heads, shape.kv_heads, shape.head_dim)
        self.wrapper = self.make_wrapper(flashinfer())
        self.planned = self.plan_arguments(torch)
        or_absent(self.plan)

    def make_wrapper(self, module) -> Any:
        raise NotImplementedError

    def plan_arguments(self, torch) -> tuple[tuple, dict]:
        """Of the wrapper's plan(): positional ones and those by name."""
        raise NotImplementedError

    def plan(self):
        self.wrapper.plan(*self.planned[0], **self.planned[1])

    def output(self, pool):
        self.launch(pool)
        return self.out


class FlashInferFa2(FlashInfer):
    name = table.FA2
    backend = "fa2"

    def make_wrapper(self, module):
        return module.BatchPrefillWithRaggedKVCacheWrapper(self.workspace, "NHD", backend=self.backend)

    def plan_arguments(self, torch):
        named = {"causal": self.batch.shape.causal} | self.types
        if self.row.variant == "custom_mask":
            named["custom_mask"] = dense_masks(torch, self.batch.shape)
            self.plans = False  # its plan() packs the mask every time, which ours is given packed
        return (self.qo_indptr, self.kv_indptr, *self.heads), named

    def launch(self, pool):
        data = self.batch.pools[pool]
        self.wrapper.run(data.q, data.k, data.v, out=self.out)


class FlashInferFa3(FlashInferFa2):
    name = table.FA3
    backend = "fa3"


class FlashInferPagedFa3(FlashInfer):
    name = table.FA3_PAGED

    def make_wrapper(self, module):
        return module.BatchPrefillWithPagedKVCacheWrapper(self.workspace, "NHD", backend="fa3")

    def plan_arguments(self, torch):
        last = torch.tensor(self.batch.last_page_len, dtype=torch.int32)
        tables = (self.qo_indptr, self.kv_indptr, self.batch.page_indices, last)
        shape = self.batch.shape
        return (*tables, *self.heads, shape.page_size), {"causal": shape.causal} | self.types

    def launch(self, pool):
        data = self.batch.pools[pool]
        self.wrapper.run(data.q, data.kv, out=self.out)


class BatchPod(FlashInfer):
    """Prefills, which are the first requests of a batch, beside its decodes."""

    name = table.BATCH_POD

    def make_wrapper(self, module):
        return module.BatchPODWithPagedKVCacheWrapper(self.workspace, "NHD")

    def plan_arguments(self, torch):
        batch = self.batch
        last = torch.tensor(batch.last_page_len, dtype=torch.int32)
        prompts = sum(queries > 1 for queries in batch.shape.qo_lens)
        pages = batch.kv_indptr[prompts]
        decodes = torch.arange(len(batch.shape.kv_lens) - prompts + 1, dtype=torch.int32)
        self.prompt_tokens = batch.qo_indptr[prompts]
        prefill = (self.qo_indptr[: prompts + 1], self.kv_indptr[: prompts + 1], batch.page_indices[:pages], last[:prompts])
        decode = (decodes, self.kv_indptr[prompts:] - pages, batch.page_indices[pages:], last[prompts:])
        return (*prefill, *decode, *self.heads, batch.shape.page_size), self.types

    def launch(self, pool):
        data, tokens = self.batch.pools[pool], self.prompt_tokens
        self.parts = self.wrapper.run(data.q[:tokens], data.kv, data.q[tokens:], data.kv, causal_p=True)

    def output(self, pool):
        self.launch(pool)
        self.out[: self.prompt_tokens], self.out[self.prompt_tokens :] = self.parts
        return self.out


class FlashInferDecode(FlashInfer):
    name = table.DECODE_TC
    tensor_cores = True

    def make_wrapper(self, module):
        if self.row.variant == "custom_mask":
            raise Absent("FlashInfer's decode takes no mask")
        # "auto" is fa2 for a 16-bit cache, and another family where it has one for 8 bits.
        return module.BatchDecodeWithPagedKVCacheWrapper(
            self.workspace, "NHD", use_tensor_cores=self.tensor_cores, backend="fa2" if self.tensor_cores else "auto"
        )

    def plan_arguments(self, torch):
        last = torch.tensor(self.batch.last_page_len, dtype=torch.int32)
        return (self.kv_indptr, self.batch.page_indices, last, *self.heads, self.batch.shape.page_size), self.types

    def launch(self, pool):
        data = self.batch.pools[pool]
        self.wrapper.run(data.q, data.kv, out=self.out)


class FlashInferDecodeCuda(FlashInferDecode):
    name = table.DECODE_CUDA
    tensor_cores = False


class BatchAttention(FlashInfer):
    """Its persistent kernel, the only one of its paths that balances."""

    name = table.BATCH_ATTENTION

    def make_wrapper(self, module):
        if self.row.variant != "plain":
            raise Absent(f"its BatchAttention has no {self.row.variant}")
        return module.BatchAttention("NHD")

    def plan_arguments(self, torch):
        shape = self.batch.shape
        lens = torch.tensor(shape.kv_lens, dtype=torch.int32)
        tables = (self.qo_indptr, self.kv_indptr, self.batch.page_indices, lens)
        return (*tables, *self.heads, shape.head_dim, shape.page_size), {"causal": True} | self.types

    def launch(self, pool):
        data = self.batch.pools[pool]
        self.wrapper.run(data.q, data.kv, out=self.out)


class Cascade(FlashInfer):
    """Two levels: the prefix of all, and what each request has behind it."""

    name = table.CASCADE

    def make_wrapper(self, module):
        if not self.batch.prefix_pages:
            raise Absent("no prefix is shared")
        return module.MultiLevelCascadeAttentionWrapper(2, self.workspace, "NHD")

    def plan_arguments(self, torch):
        def ints(values):
            return torch.tensor(values, dtype=torch.int32)

        batch, pages = self.batch, self.batch.prefix_pages
        count = len(batch.shape.kv_lens)
        own = [begin - i * pages for i, begin in enumerate(batch.kv_indptr)]
        rows = [batch.page_indices[begin + pages : end] for begin, end in itertools.pairwise(batch.kv_indptr)]
        levels = (
            [ints([0, count]), self.qo_indptr],
            [ints([0, pages]), ints(own)],
            [batch.page_indices[:pages], torch.cat(rows)],
            [ints([batch.shape.page_size]), ints(batch.last_page_len)],
        )
        return (*levels, *self.heads, batch.shape.page_size), self.types

    def launch(self, pool):
        data = self.batch.pools[pool]
        self.out = self.wrapper.run(data.q, data.kv)


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
