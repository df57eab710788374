# SPDX-License-Identifier: Apache-2.0
"""Several threads, a forked process, and objects that outlive each other's names."""

import concurrent.futures
import gc
import os
import threading

import attnloom
import numpy as np
from float64_attention import assert_agrees, attend

HEADS = {"q_heads": 2, "kv_heads": 1, "head_dim": 64, "dtype": "f16"}


def test_threads_call_the_one_line_with_batches_of_their_own(context):
    def work(seed):
        generator = np.random.default_rng(seed)
        for keys in (3, 20, 9):
            shapes = ((2, 2, 64), (keys, 1, 64), (keys, 1, 64))
            q, k, v = (generator.standard_normal(shape).astype(np.float16) for shape in shapes)
            assert_agrees(attnloom.attention(q, k, v, causal=True, context=context), None, attend(q, k, v, causal=True))
        return True

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


def test_threads_take_turns_with_one_plan(context, normal):
    q, k, v = normal(2, 2, 64), normal(9, 1, 64), normal(9, 1, 64)
    attention = attnloom.Attention(context, **HEADS)
    attention.plan([0, 2], [0, 9])
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for out in pool.map(lambda _: attention.run(q, k, v), range(12)):
            assert_agrees(out, None, attend(q, k, v))


def test_other_threads_run_while_a_kernel_is_compiled(tmp_path):
    """What a thread does in Python between the start and the end of a compile shows that the GIL was free."""
    attention = attnloom.Attention(attnloom.Context("simulator", cache_dir=tmp_path), **HEADS)
    compiled, beats = threading.Event(), []

    def compile_one():
        attention.plan([0, 1], [0, 5])
        compiled.set()

    thread = threading.Thread(target=compile_one)
    thread.start()
    while not compiled.wait(0.005):
        beats.append(None)
    thread.join()
    assert len(beats) > 2  # two at most if it was held: one before the start, one before the event


def test_what_was_made_of_a_context_keeps_it(normal):
    q, k, v = normal(1, 2, 64), normal(5, 1, 64), normal(5, 1, 64)
    attention = attnloom.Attention(attnloom.Context("simulator"), **HEADS)
    gc.collect()
    attention.plan([0, 1], [0, 5])
    assert_agrees(attention.run(q, k, v), None, attend(q, k, v))


def test_a_forked_process_uses_the_simulator_on(context, normal):
    """The simulated device lives in this process' memory, so a fork has its own; after a GPU was used it is ForkedError."""
    q, k, v = normal(1, 2, 64), normal(5, 1, 64), normal(5, 1, 64)
    attnloom.attention(q, k, v, context=context)
    child = os.fork()
    if child == 0:
        try:
            out = attnloom.attention(q, k, v, context=context)
            os._exit(0 if np.abs(out - attend(q, k, v)[0]).max() < 4e-3 else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
