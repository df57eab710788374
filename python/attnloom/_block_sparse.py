# SPDX-License-Identifier: Apache-2.0
"""BlockSparse: which blocks of keys each block of query tokens sees, from the formats that engines have."""

from typing import Any

from attnloom import _core
from attnloom._attention import IndexArray, _integer
from attnloom._errors import refused

# u8 of 0 or 1 for each entry, contiguous, on the host.
Bytes = Any
Block = tuple[int, int]


class BlockSparse:
    """A sparse pattern: rows of block[0] query tokens of one request, each a list of columns of block[1] of the request's
    keys. A block that not all tokens of its row see whole is partial, and needs the mask.

    Made by the from_ functions. Every array is int32 on the host, a list or an array with __dlpack__; K and V are neither
    copied nor moved. docs/BLOCK_SPARSE.md says what each format means and how K, V and q are to be viewed.

        sparse = BlockSparse.from_draft_trees(draft_indptr, parent, context_len, block=(16, 64))
        attention = Attention(context, layout="bsr", block=sparse.block, ...)   # "mask": {"custom": true} if partial_blocks
        attention.plan(**sparse.plan_arguments())
        attention.run(q, k, v, block_indices=..., custom_mask=...)              # both copied to the device

    Never changes; any number of threads. All functions raise WorkloadError with array, entry, and request or head.
    Source: alm_block_sparse_* in attnloom.h.
    """

    def __init__(self, core: _core.BlockSparse) -> None:
        self._core = core
        read = core.read()
        self.block: Block = read["block"]
        self.partial_blocks: int = read["partial_blocks"]
        # int32 arrays with __dlpack__ and the buffer protocol, copies of the pattern's.
        self.qo_indptr: Any = read["qo_indptr"]
        self.kv_indptr: Any = read["kv_indptr"]
        self.block_indptr: Any = read["block_indptr"]
        self.block_indices: Any = read["block_indices"]

    @classmethod
    def _make(cls, format: str, block: Block | None, **fields: Any) -> "BlockSparse":
        if block is not None and (not isinstance(block, tuple) or len(block) != 2):
            raise refused("block", f"must be (query tokens, keys), given {block!r}")
        rows, columns = (0, 0) if block is None else (_integer("block", size, 1) for size in block)
        return cls(_core.BlockSparse.make(format, fields, rows, columns))

    @classmethod
    def from_ragged(cls, qo_indptr: IndexArray, kv_indptr: IndexArray, *, block: Block) -> "BlockSparse":
        """Every query token of a request sees all of its keys. Both [batch + 1], tokens."""
        return cls._make("ragged", block, qo_indptr=qo_indptr, kv_indptr=kv_indptr)

    @classmethod
    def from_lists(
        cls,
        qo_indptr: IndexArray,
        kv_indptr: IndexArray,
        block_indptr: IndexArray,
        block_indices: IndexArray,
        *,
        block: Block,
    ) -> "BlockSparse":
        """Lists that exist already: row r of blocks sees columns block_indices[block_indptr[r]:block_indptr[r + 1]] of its
        request's keys; rows of requests in order."""
        return cls._make(
            "lists",
            block,
            qo_indptr=qo_indptr,
            kv_indptr=kv_indptr,
            block_indptr=block_indptr,
            block_indices=block_indices,
        )

    @classmethod
    def from_pages(
        cls,
        qo_indptr: IndexArray,
        kv_indptr: IndexArray,
        page_indices: IndexArray,
        last_page_len: IndexArray,
        *,
        pool_pages: int,
        page_size: int,
        causal: bool = False,
        block: Block | None = None,
    ) -> "BlockSparse":
        """A page table, as one request of all query tokens over the keys of the whole pool.

        qo_indptr: [batch + 1] query tokens. kv_indptr: [batch + 1] entries of page_indices, which names no page twice in a
            request. last_page_len: [batch]. causal: a query token sees the keys up to its own, at the request's end.
        block: default: one query token, and as many keys as leave no slot behind a last token in a block.
        """
        return cls._make(
            "pages",
            block,
            qo_indptr=qo_indptr,
            kv_indptr=kv_indptr,
            page_indices=page_indices,
            last_page_len=last_page_len,
            pool_pages=_integer("pool_pages", pool_pages, 0),
            page_size=_integer("page_size", page_size, 0),
            causal=int(bool(causal)),
        )

    @classmethod
    def from_prefix_tree(
        cls,
        qo_indptr: IndexArray,
        node: IndexArray,
        parent: IndexArray,
        key_begin: IndexArray,
        key_count: IndexArray,
        *,
        keys: int,
        causal: bool = False,
        block: Block,
    ) -> "BlockSparse":
        """A prefix (radix) tree over one store of keys: a request sees the tokens of all nodes from its root to its own.

        qo_indptr: [batch + 1] query tokens. node: [batch], where each request ends. parent: [nodes], -1: a root.
        key_begin, key_count: [nodes], key rows of the node's tokens. keys: rows of the store. causal: as of from_pages.
        """
        return cls._make(
            "prefix_tree",
            block,
            qo_indptr=qo_indptr,
            node=node,
            parent=parent,
            key_begin=key_begin,
            key_count=key_count,
            keys=_integer("keys", keys, 0, 2**63 - 1),
            causal=int(bool(causal)),
        )

    @classmethod
    def from_draft_trees(
        cls, draft_indptr: IndexArray, parent: IndexArray, context_len: IndexArray, *, block: Block
    ) -> "BlockSparse":
        """Speculative decoding: the query tokens of a request are a tree of drafts, whose own keys lie behind its context.
        Each sees the context, its ancestors and itself.

        draft_indptr: [batch + 1] query tokens. parent: [tokens], number within the request, -1: the context.
        context_len: [batch].
        """
        return cls._make("draft_trees", block, draft_indptr=draft_indptr, parent=parent, context_len=context_len)

    @classmethod
    def from_mask(cls, qo_indptr: IndexArray, kv_indptr: IndexArray, mask: Bytes, *, block: Block) -> "BlockSparse":
        """mask: a byte of 0 or 1 for each query token and key, [q_len][kv_len] of each request in turn."""
        return cls._make("mask", block, qo_indptr=qo_indptr, kv_indptr=kv_indptr, mask=mask)

    @classmethod
    def from_head_pages(
        cls,
        qo_indptr: IndexArray,
        kv_indptr: IndexArray,
        page_indices: IndexArray,
        last_page_len: IndexArray,
        pick_indptr: IndexArray,
        picks: IndexArray,
        *,
        pool_pages: int,
        page_size: int,
        kv_heads: int,
        hnd: bool = False,
        block: Block | None = None,
    ) -> "BlockSparse":
        """Importance masks (Quest): for each query token and KV head the pages that it picks.

        The page table as of from_pages. pick_indptr: [query tokens * kv_heads + 1] entries of picks, which are places in the
            request's part of the page table. hnd: in the pool heads come before the tokens of a page.
        """
        return cls._make(
            "head_pages",
            block,
            qo_indptr=qo_indptr,
            kv_indptr=kv_indptr,
            page_indices=page_indices,
            last_page_len=last_page_len,
            pick_indptr=pick_indptr,
            picks=picks,
            pool_pages=_integer("pool_pages", pool_pages, 0),
            page_size=_integer("page_size", page_size, 0),
            causal=0,
            kv_heads=_integer("kv_heads", kv_heads, 0),
            hnd=int(bool(hnd)),
        )

    @classmethod
    def from_head_blocks(
        cls,
        row_indptr: IndexArray,
        row_sizes: IndexArray,
        column_indptr: IndexArray,
        column_sizes: IndexArray,
        map: Bytes,
        *,
        block: Block | None = None,
    ) -> "BlockSparse":
        """Blocks of sizes that vary along both axes and with the head, of one sequence. KV head h becomes request h.

        row_indptr: [kv_heads + 1] entries of row_sizes (query tokens), column_indptr the same of column_sizes (keys).
        map: a byte of 0 or 1 for each, [rows][columns] of each head in turn.
        block: default: the largest that needs no mask.
        """
        return cls._make(
            "head_blocks",
            block,
            row_indptr=row_indptr,
            row_sizes=row_sizes,
            column_indptr=column_indptr,
            column_sizes=column_sizes,
            map=map,
        )

    def reblock(self, block: Block) -> "BlockSparse":
        """The same pattern in other blocks, for example of as many rows as fill a query tile."""
        rows, columns = (_integer("block", size, 1) for size in block)
        return BlockSparse(self._core.reblock(rows, columns))

    def plan_arguments(self) -> dict[str, Any]:
        """The arguments of Attention.plan for this pattern."""
        names = ("qo_indptr", "kv_indptr", "block_indptr", "block_indices")
        return {name: getattr(self, name) for name in names}

    def custom_mask(self) -> Any:
        """The whole pattern as run() takes its custom_mask: u8, packed bits; to be copied to the device."""
        return self._core.custom_mask()

    def check_mask(self, qo_indptr: IndexArray, kv_indptr: IndexArray, mask: Bytes) -> None:
        """Raises WorkloadError with the first request, query token and key where a mask says something else."""
        self._core.check({"qo_indptr": qo_indptr, "kv_indptr": kv_indptr, "mask": mask})
