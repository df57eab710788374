# SPDX-License-Identifier: Apache-2.0
"""The ceiling of a decode row: a kernel that reads the row's keys and values and does nothing with them but add them up
(load_only.cu). Built with NVRTC on any machine, by `build`; launched through the driver in torch's context.
"""

import bisect
import ctypes
import hashlib
import itertools
import pathlib

import rows as table
from peers import Absent, Peer

HERE = pathlib.Path(__file__).resolve().parent
HEADERS = HERE.parent / "kernel_templates"
TARGET = table.TARGET
THREADS = 128
STAGE_BYTES = 16 << 10
STAGES = 4
CTAS_PER_SM = 3  # as our decode kernels have
DYNAMIC_SHARED_BYTES_ATTRIBUTE = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
NVRTC_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so")


def program():
    """(text, {name: text of every header it could include})."""
    headers = sorted(HEADERS.glob("loom/*.cuh"))
    names = {str(path.relative_to(HEADERS)): path.read_text(encoding="utf-8") for path in headers}
    return (HERE / "load_only.cu").read_text(encoding="utf-8"), names


def file_name():
    """Of the cubin, by all that it is made of: an old one is not found."""
    text, headers = program()
    digest = hashlib.sha256("\0".join([TARGET, text, *itertools.chain(*headers.items())]).encode())
    return f"load_only-{digest.hexdigest()[:16]}.cubin"


def open_nvrtc(path):
    for name in [path] if path else NVRTC_NAMES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise table.Refused(f"no NVRTC: {path or ', '.join(NVRTC_NAMES)} cannot be opened; name it with --nvrtc")


def compiled(nvrtc):
    """The cubin."""
    text, headers = program()
    count = len(headers)
    names = (ctypes.c_char_p * count)(*(name.encode() for name in headers))
    texts = (ctypes.c_char_p * count)(*(header.encode() for header in headers.values()))
    handle, size = ctypes.c_void_p(), ctypes.c_size_t()
    if nvrtc.nvrtcCreateProgram(ctypes.byref(handle), text.encode(), b"load_only.cu", count, texts, names) != 0:
        raise table.Refused("NVRTC makes no program of load_only.cu")
    options = [f"--gpu-architecture={TARGET}".encode(), b"--std=c++17"]
    status = nvrtc.nvrtcCompileProgram(handle, len(options), (ctypes.c_char_p * len(options))(*options))
    what = "ProgramLog" if status != 0 else "CUBIN"
    getattr(nvrtc, f"nvrtcGet{what}Size")(handle, ctypes.byref(size))
    result = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(handle, result)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(handle))
    if status != 0:
        raise table.Refused(f"load_only.cu: {result.value.decode()}")
    return result.raw


def build(folder, nvrtc_path):
    """Writes the cubin into `folder`; returns its path."""
    path = pathlib.Path(folder) / file_name()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(compiled(open_nvrtc(nvrtc_path)))
    return path


def split(kv_lens, first_pages, kv_heads, tile, ctas):
    """What each CTA reads: ([(first page, kv head, begin, end)], [where each CTA's begin, and the end]). As many tiles
    of `tile` keys for each as whole tiles allow, in the order of requests and heads."""
    walks = [(first, head, length) for first, length in zip(first_pages, kv_lens) for head in range(kv_heads)]
    ends = list(itertools.accumulate(-(-length // tile) for _, _, length in walks))
    total = ends[-1]
    items, begins = [], [0]
    for cta in range(ctas):
        at, last = total * cta // ctas, total * (cta + 1) // ctas
        while at < last:
            walk = bisect.bisect_right(ends, at)
            first, head, length = walks[walk]
            start = ends[walk - 1] if walk else 0
            stop = min(last, ends[walk])
            items.append((first, head, (at - start) * tile, min(length, (stop - start) * tile)))
            at = stop
        begins.append(len(items))
    return items, begins


class Arguments(ctypes.Structure):
    """Args of load_only.cu."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("k", "v", "page_indices", "items", "items_begin", "sums")]
    _fields_ += [(name, ctypes.c_int64) for name in ("page_bytes", "token_bytes", "head_bytes")]
    _fields_ += [("page_shift", ctypes.c_int32)]


class LoadOnly(Peer):
    name = table.LOAD_ONLY
    plans = False

    def __init__(self, torch, batch, folder):
        shape = batch.shape
        key_bytes = shape.head_dim * batch.pools[0].k.element_size()
        if shape.task != "decode" or key_bytes not in (128, 256) or shape.page_size & (shape.page_size - 1):
            raise Absent("it reads paged rows of 128 or 256 bytes, in pages of a power of two")
        path = pathlib.Path(folder or "") / file_name()
        if not folder or not path.exists():
            raise Absent(f"{path} is not built (bench/compare --build-load-only)")
        self.torch, self.batch = torch, batch
        self.ctas = CTAS_PER_SM * torch.cuda.get_device_properties(0).multi_processor_count
        tile = STAGE_BYTES // 2 // key_bytes
        items, begins = split(shape.kv_lens, batch.kv_indptr, shape.kv_heads, tile, self.ctas)
        self.items = torch.tensor(items, dtype=torch.int32, device="cuda")
        self.begins = torch.tensor(begins, dtype=torch.int32, device="cuda")
        self.sums = torch.zeros(self.ctas * THREADS, dtype=torch.int32, device="cuda")
        self.arguments = [self.arguments_of(pool) for pool in batch.pools]
        self.load(path.read_bytes(), f"load_only_{key_bytes}")

    def arguments_of(self, pool):
        if pool.k.stride() != pool.v.stride():
            raise Absent("keys and values have different strides")
        page, token, head = (stride * pool.k.element_size() for stride in pool.k.stride()[:3])
        tensors = (pool.k, pool.v, self.batch.page_indices, self.items, self.begins, self.sums)
        page_shift = self.batch.shape.page_size.bit_length() - 1
        return Arguments(*(x.data_ptr() for x in tensors), page, token, head, page_shift)

    def load(self, cubin, entry):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        self.shared_bytes = STAGES * STAGE_BYTES
        self.call("cuModuleLoadData", ctypes.byref(self.module), cubin)
        self.call("cuModuleGetFunction", ctypes.byref(self.function), self.module, entry.encode())
        self.call("cuFuncSetAttribute", self.function, DYNAMIC_SHARED_BYTES_ATTRIBUTE, self.shared_bytes)

    def call(self, name, *arguments):
        status = getattr(self.driver, name)(*arguments)
        if status != 0:
            raise RuntimeError(f"the load-only kernel: {name} returned {status}")

    def launch(self, pool):
        stream = ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(self.arguments[pool]))
        grid = (self.ctas, 1, 1, THREADS, 1, 1)
        self.call("cuLaunchKernel", self.function, *grid, self.shared_bytes, stream, parameters, None)

    def disagreement(self):
        """What to say when it did not read every key and value once, or None."""
        torch, want = self.torch, 0
        for request in range(len(self.batch.shape.kv_lens)):
            for x in self.batch.keys_and_values(torch, request):
                want += x.contiguous().view(torch.int32).sum(dtype=torch.int64).item()
        self.launch(0)
        got = self.sums.sum(dtype=torch.int64).item()
        return None if (got - want) % (1 << 32) == 0 else f"{self.name} did not read every key and value once"

    def close(self):
        self.torch.cuda.synchronize()
        self.call("cuModuleUnload", self.module)
