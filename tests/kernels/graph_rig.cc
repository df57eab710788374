// SPDX-License-Identifier: Apache-2.0
#include "kernels/graph_rig.h"

#include <catch2/catch.hpp>
#include <span>

#include "kernels/kernel_rig.h"

namespace attnloom::testing {
namespace {

constexpr int kDim = 64;
constexpr int kPage = 16;
constexpr int kBlockRows = 8;
constexpr int kBlockColumns = 16;
constexpr int kSparseIndices = 4096;

std::string spec_text(const RigShape& shape) {
  const std::string layout =
      shape.sparse ? R"({"kv": "bsr", "block": [8, 16]})" : R"({"kv": "paged", "page_size": 16})";
  return R"({"attnloom": 1, "kernel": "attention",
"dtype": {"q": "bf16", "kv": "bf16", "o": "bf16"}, "head_dim": {"qk": 64, "vo": 64}, "group_size": )" +
         std::to_string(shape.group) + R"(, "layout": )" + layout + R"(, "tile": )" + shape.tile +
         R"(, "variant": {"name": "replayed", "mask": {"causal": )" +
         (shape.causal ? "true" : "false") + "}}}";
}

template <class T>
void must(const T& result) {
  if constexpr (std::is_same_v<T, Status>) {
    INFO(result.to_string());
    REQUIRE(result.ok());
  } else {
    must(result.status());
  }
}

}  // namespace

RigBatch& RigBatch::add_paged(int qo_len, int kv_len, int first_page) {
  const int count = (kv_len + kPage - 1) / kPage;
  if (first_page < 0) first_page = kv.back();
  qo.push_back(qo.back() + qo_len);
  kv.push_back(kv.back() + count);
  last.push_back(count == 0 ? 0 : kv_len - (count - 1) * kPage);
  for (int page = 0; page < count; ++page) pages.push_back(first_page + page);
  return *this;
}

RigBatch& RigBatch::add_sparse(int qo_len, int kv_len, std::mt19937& random) {
  if (block_indptr.empty()) block_indptr = {0};
  qo.push_back(qo.back() + qo_len);
  kv.push_back(kv.back() + kv_len);
  for (int row = 0; row < qo_len; row += kBlockRows) {
    for (int column = 0; column * kBlockColumns < kv_len; ++column)
      if (random() % 3 != 0) blocks.push_back(column);
    block_indptr.push_back(static_cast<std::int32_t>(blocks.size()));
  }
  return *this;
}

Workload RigBatch::workload() const {
  Workload made;
  made.qo_indptr = qo;
  made.kv_indptr = kv;
  made.last_page_len = last;
  made.block_indptr = block_indptr;
  return made;
}

std::vector<std::uint16_t> random_bits(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uint16_t> bits(count);
  // Exponents of 2^-8 to 2^-1, so that values are of one order and their sums round.
  for (std::uint16_t& x : bits) {
    const std::uint64_t r = random();
    const std::uint64_t exponent = 119 + (r >> 32) % 8;
    x = static_cast<std::uint16_t>((r & 0x807f) | exponent << 7);
  }
  return bits;
}

GraphRig::GraphRig(const RigShape& shape) : shape_(shape) {
  engine_ = make_engine_over([this] { return device_->make_backend(); });
  const Result<Backend*> backend = engine_->backend();
  must(backend);
  backend_ = backend.value();
  Result<std::shared_ptr<KernelSet>> opened = engine_->open(spec_text(shape));
  must(opened);
  kernels_ = std::move(opened).value();
  const int q_heads = shape.kv_heads * shape.group;
  const std::int64_t q[] = {shape.max_tokens, q_heads, kDim};
  const std::int64_t paged[] = {shape.kv_tokens / kPage, kPage, shape.kv_heads, kDim};
  const std::int64_t ragged[] = {shape.kv_tokens, shape.kv_heads, kDim};
  const auto keys = shape.sparse ? std::span<const std::int64_t>(ragged) : std::span(paged);
  const std::size_t key_count = static_cast<std::size_t>(shape.kv_tokens * shape.kv_heads) * kDim;
  const std::size_t q_count = static_cast<std::size_t>(shape.max_tokens * q_heads) * kDim;
  tensors_.q = dense_tensor(TensorType::kBf16, q, place(q_count * 2, "q"));
  tensors_.k = dense_tensor(TensorType::kBf16, keys, place(key_count * 2, "k"));
  tensors_.v = dense_tensor(TensorType::kBf16, keys, place(key_count * 2, "v"));
  tensors_.o = dense_tensor(TensorType::kBf16, q, place(q_count * 2, "o"));
  tensors_.lse =
      dense_tensor(TensorType::kF32, std::span(q, 2),
                   place(static_cast<std::size_t>(shape.max_tokens * q_heads) * 4, "lse"));
  const std::int64_t entries[] = {shape.sparse ? kSparseIndices : shape.kv_tokens / kPage};
  TensorView& indices = shape.sparse ? tensors_.block_indices : tensors_.page_indices;
  indices = dense_tensor(TensorType::kI32, entries,
                         place(static_cast<std::size_t>(entries[0]) * 4, "indices"));
  set_queries(random_bits(q_count, 1));
  const std::vector<std::uint16_t> k = random_bits(key_count, 2);
  must(backend_->copy_in(tensors_.k.data, std::as_bytes(std::span(k))));
  set_values(random_bits(key_count, 3));
}

DeviceAddress GraphRig::place(std::size_t bytes, const std::string& label) {
  Result<DeviceAddress> address = backend_->allocate(bytes, label);
  must(address);
  return address.value();
}

void GraphRig::set_queries(const std::vector<std::uint16_t>& bits) {
  must(backend_->copy_in(tensors_.q.data, std::as_bytes(std::span(bits))));
}

void GraphRig::set_values(const std::vector<std::uint16_t>& bits) {
  must(backend_->copy_in(tensors_.v.data, std::as_bytes(std::span(bits))));
}

GraphRig::Planned GraphRig::make_plan(const PlanOptions& options, PlanLimits limits, int fill) {
  limits.max_batch = shape_.max_batch;
  limits.max_qo_tokens = shape_.max_tokens;
  limits.kv_heads = shape_.kv_heads;
  limits.q_heads = shape_.kv_heads * shape_.group;
  Planned planned;
  Result<std::unique_ptr<PlanObject>> made = PlanObject::create(kernels_, limits, options);
  must(made);
  planned.plan = std::move(made).value();
  planned.workspace = place(planned.plan->workspace_bytes(), "workspace");
  if (fill >= 0) {
    const std::vector<std::byte> bytes(planned.plan->workspace_bytes(), std::byte(fill));
    must(backend_->copy_in(planned.workspace, bytes));
  }
  planned.staging.resize(planned.plan->staging_bytes());
  must(planned.plan->bind(planned.workspace, planned.plan->workspace_bytes(),
                          planned.staging.data(), planned.staging.size()));
  return planned;
}

void GraphRig::update(Planned& planned, const RigBatch& batch) {
  const std::vector<std::int32_t>& indices = shape_.sparse ? batch.blocks : batch.pages;
  const TensorView& tensor = shape_.sparse ? tensors_.block_indices : tensors_.page_indices;
  REQUIRE(std::ssize(indices) <= tensor.shape[0]);
  must(planned.plan->update(batch.workload(), stream()));
  if (!indices.empty()) must(backend_->copy_in(tensor.data, std::as_bytes(std::span(indices))));
}

void GraphRig::poison() {
  const auto rows = static_cast<std::size_t>(shape_.max_tokens * shape_.kv_heads * shape_.group);
  const std::vector<std::byte> bytes(rows * kDim * 2, std::byte{0xff});
  must(backend_->copy_in(tensors_.o.data, bytes));
  must(backend_->copy_in(tensors_.lse.data, std::span(bytes).first(rows * 4)));
}

RigOutput GraphRig::read(const PlanObject& plan) {
  const auto rows =
      static_cast<std::size_t>(plan.plan()->qo_tokens * shape_.kv_heads * shape_.group);
  RigOutput output{std::vector<std::uint16_t>(rows * kDim), std::vector<std::uint32_t>(rows)};
  if (rows == 0) return output;
  must(backend_->copy_out(std::as_writable_bytes(std::span(output.o)), tensors_.o.data));
  must(backend_->copy_out(std::as_writable_bytes(std::span(output.lse)), tensors_.lse.data));
  CHECK(device_->take_finding() == "");
  return output;
}

RigOutput GraphRig::run(Planned& planned) {
  poison();
  must(planned.plan->run(tensors_, stream()));
  return read(*planned.plan);
}

void GraphRig::capture(Planned& planned) {
  must(device_->begin_capture());
  must(planned.plan->run(tensors_, stream()));
  must(device_->end_capture());
}

RigOutput GraphRig::replay(const Planned& planned) {
  poison();
  must(device_->replay());
  return read(*planned.plan);
}

}  // namespace attnloom::testing
