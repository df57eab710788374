# SPDX-License-Identifier: Apache-2.0
"""What a fused RoPE is measured against: a pass that rotates the cached keys into a copy, then our plain kernel."""

import ours
from variants import inverse_frequencies


def rope_into(out, rows, cosine, sine, positions):
    """Rotates pairs (i, i + dim / 2) of [...][head][dim]. Written so that a compiler makes one pass of it: each element
    reads its partner, and the sines of the first half are negative."""
    x = rows.unflatten(-1, (2, -1)).float()
    out.copy_((x * cosine[positions] + x.flip(-2) * sine[positions]).flatten(-2).to(rows.dtype))


class RopeThenPlain(ours.Contender):
    """The pass is compiled by torch before the first timed launch. The values stay where they are."""

    def __init__(self, torch, context, batch, spec, variant, name):
        super().__init__(torch, context, batch, spec, variant, name)
        shape = batch.shape
        lens = torch.tensor(shape.kv_lens, device="cuda")
        angle = torch.arange(max(shape.kv_lens), device="cuda")[:, None].double()
        angle = angle * inverse_frequencies(torch, shape)["inv_freq"].double()
        self.cosine = torch.cos(angle).float()[:, None, None, :]
        self.sine = torch.stack([-torch.sin(angle), torch.sin(angle)], dim=1).float()[:, None, :, :]
        # Of each slot of each page: its place in its request. Slots behind the last key have the last one's.
        self.k_positions = torch.empty(batch.pools[0].k.shape[:2], dtype=torch.int64, device="cuda")
        for request, length in enumerate(shape.kv_lens):
            begin, end = batch.kv_indptr[request], batch.kv_indptr[request + 1]
            places = torch.arange((end - begin) * shape.page_size, device="cuda").clamp(max=length - 1)
            self.k_positions[batch.page_indices[begin:end].long()] = places.view(-1, shape.page_size)
        self.q_positions = lens - 1
        self.pools = batch.pools
        self.rope = torch.compile(rope_into, dynamic=False)
        self.q = torch.empty_like(batch.pools[0].q)
        # Dense: into a view with gaps the compiled pass would write by way of a second copy.
        self.k = torch.empty(batch.pools[0].k.shape, dtype=self.q.dtype, device="cuda")
        for run in self.runs:
            run.q, run.k = ours.tensor_of(self.q), ours.tensor_of(self.k)

    def launch(self, pool):
        data = self.pools[pool]
        self.rope(self.q, data.q, self.cosine, self.sine, self.q_positions)
        self.rope(self.k, data.k, self.cosine, self.sine, self.k_positions)
        super().launch(pool)
