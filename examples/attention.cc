// SPDX-License-Identifier: Apache-2.0
//
// A mixed batch over a paged cache in C++: one request decodes, one prefills causally, both with a
// soft cap written as a line of device code. Compared with values worked out by hand.
//
// All keys are zero, so every visible key weighs the same; value j of a request is the number j in
// every dimension. A query that sees n keys has the output (n - 1) / 2 and the LSE ln n.
//
// Runs on the GPU, or on the simulated device where there is none. Exit status 0 when all values
// agree.
#include <attnloom/attnloom.hpp>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

constexpr int kQueryHeads = 2;
constexpr int kKvHeads = 1;
constexpr int kDim = 64;
constexpr int kPageSize = 16;
constexpr int kPoolPages = 4;

constexpr char kSpec[] = R"({
  "attnloom": 1, "kernel": "attention",
  "dtype": {"q": "bf16", "kv": "bf16", "o": "bf16"}, "head_dim": {"qk": 64, "vo": 64}, "group_size": 2,
  "layout": {"kv": "paged", "page_size": 16},
  "variant": {
    "name": "soft_cap", "mask": {"causal": true},
    "params": [{"name": "cap", "type": "f32"}],
    "logits_transform": "return cap * loom::tanh(logits / cap);"
  }
})";

// The batch: request 0 has 1 query and 20 keys in pages 3 and 1, request 1 has 4 queries and 6 keys
// in page 2.
const std::vector<std::int32_t> kQoIndptr = {0, 1, 5};
const std::vector<std::int32_t> kPageIndptr = {0, 2, 3};
const std::vector<std::int32_t> kLastPageLen = {4, 6};
const std::vector<std::int32_t> kPages = {3, 1, 2};
const std::vector<int> kVisibleKeys = {20, 3, 4, 5,
                                       6};  // of each query, causal from the bottom right

std::uint16_t to_bf16(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<std::uint16_t>(bits >> 16);  // exact for the small integers used here
}

float from_bf16(std::uint16_t value) {
  const std::uint32_t bits = static_cast<std::uint32_t>(value) << 16;
  float result = 0;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

// The values of the pool. Slots that no request owns hold NaN: they must not matter.
std::vector<std::uint16_t> make_pool(bool values) {
  std::vector<std::uint16_t> pool(kPoolPages * kPageSize * kDim, 0x7fc0);
  for (std::size_t request = 0; request + 1 < kPageIndptr.size(); ++request) {
    const int pages = kPageIndptr[request + 1] - kPageIndptr[request];
    const int keys = (pages - 1) * kPageSize + kLastPageLen[request];
    for (int j = 0; j < keys; ++j) {
      const int page = kPages[kPageIndptr[request] + j / kPageSize];
      for (int d = 0; d < kDim; ++d)
        pool[(page * kPageSize + j % kPageSize) * kDim + d] =
            to_bf16(values ? static_cast<float>(j) : 0.0f);
    }
  }
  return pool;
}

int compare(const std::vector<std::uint16_t>& o, const std::vector<float>& lse) {
  int wrong = 0;
  for (std::size_t token = 0; token < kVisibleKeys.size(); ++token) {
    const float want_o = static_cast<float>(kVisibleKeys[token] - 1) / 2;
    const float want_lse = std::log(static_cast<float>(kVisibleKeys[token]));
    for (int i = 0; i < kQueryHeads * kDim; ++i)
      if (!(std::fabs(from_bf16(o[token * kQueryHeads * kDim + i]) - want_o) <= 0.05f)) ++wrong;
    for (int head = 0; head < kQueryHeads; ++head)
      if (!(std::fabs(lse[token * kQueryHeads + head] - want_lse) < 1e-3f)) ++wrong;
    std::printf("query %zu: o = %g (want %g), lse = %g (want %g)\n", token,
                from_bf16(o[token * kQueryHeads * kDim]), want_o, lse[token * kQueryHeads],
                want_lse);
  }
  return wrong;
}

int run() {
  attnloom::Context context;
  attnloom::Kernel kernel(context, kSpec);
  kernel.prepare();  // compiles or finds every kernel now instead of at the first batch

  auto limits = attnloom::zeroed<alm_plan_limits>();
  limits.max_batch = 2;
  limits.max_qo_tokens = 8;
  limits.q_heads = kQueryHeads;
  limits.kv_heads = kKvHeads;
  attnloom::Plan plan(kernel, limits);
  attnloom::Memory workspace = context.allocate(plan.sizes().workspace_bytes, "workspace");
  std::vector<char> staging(plan.sizes().staging_bytes);
  plan.bind(workspace.address(), workspace.bytes(), staging.data(), staging.size());

  const alm_scalar cap = {"cap", 30.0};
  auto workload = attnloom::zeroed<alm_workload>();
  workload.qo_indptr = attnloom::index_array(kQoIndptr);
  workload.kv_indptr = attnloom::index_array(kPageIndptr);
  workload.last_page_len = attnloom::index_array(kLastPageLen);
  workload.page_indices = attnloom::index_array(kPages);
  workload.pool_pages = kPoolPages;
  workload.scalars = &cap;
  workload.scalar_count = 1;
  plan.update(workload);  // once a step

  const std::int64_t tokens = static_cast<std::int64_t>(kVisibleKeys.size());
  std::vector<std::uint16_t> o(tokens * kQueryHeads * kDim, to_bf16(1.0f));
  std::vector<float> lse(tokens * kQueryHeads);
  const attnloom::Memory q_memory = context.upload(o, "q");  // any finite query will do
  const attnloom::Memory k_memory = context.upload(make_pool(false), "k");
  const attnloom::Memory v_memory = context.upload(make_pool(true), "v");
  const attnloom::Memory pages = context.upload(kPages, "page_indices");
  const attnloom::Memory o_memory = context.allocate(o.size() * sizeof o[0], "o");
  const attnloom::Memory lse_memory = context.allocate(lse.size() * sizeof lse[0], "lse");

  auto tensors = attnloom::zeroed<alm_attention>();
  tensors.q = attnloom::dense_tensor(q_memory.address(), ALM_BF16, {tokens, kQueryHeads, kDim});
  tensors.k =
      attnloom::dense_tensor(k_memory.address(), ALM_BF16, {kPoolPages, kPageSize, kKvHeads, kDim});
  tensors.v =
      attnloom::dense_tensor(v_memory.address(), ALM_BF16, {kPoolPages, kPageSize, kKvHeads, kDim});
  tensors.o = attnloom::dense_tensor(o_memory.address(), ALM_BF16, {tokens, kQueryHeads, kDim});
  tensors.lse = attnloom::dense_tensor(lse_memory.address(), ALM_F32, {tokens, kQueryHeads});
  tensors.page_indices =
      attnloom::dense_tensor(pages.address(), ALM_I32, {static_cast<std::int64_t>(kPages.size())});
  plan.run(tensors);  // once a layer
  context.synchronize();
  o_memory.copy_out(o.data(), o_memory.bytes());
  lse_memory.copy_out(lse.data(), lse_memory.bytes());
  const int wrong = compare(o, lse);
  std::printf("%s\n", wrong == 0 ? "all values agree" : "values differ");
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const attnloom::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
