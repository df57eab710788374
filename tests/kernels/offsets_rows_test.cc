// SPDX-License-Identifier: Apache-2.0
// Rows, heads and slots whose strides alone leave 32 bits: of q, o and lse, of the heads of K and
// V, of the slots of a page. Allocations of the simulated device lie 4 GiB apart, so a tensor of
// two rows is two of them and a stride; a wrapped product is an access to neither.
#include <cmath>
#include <span>

#include "engine/plan_object.h"
#include "kernels/device_tensors.h"
#include "kernels/kernel_rig.h"
#include "reference/number_format.h"

namespace attnloom::testing {
namespace {

constexpr int kDim = 64;

// Two allocations of `row`, another between them, and the elements from one to the other.
template <class T>
struct FarRows {
  DeviceAddress first, second;
  std::int64_t stride;

  FarRows(DeviceTensors& device, const std::vector<T>& row, const std::vector<T>& next,
          const char* label) {
    first = device.put(row, label);
    device.room(16, "gap");
    second = device.put(next, label);
    stride = static_cast<std::int64_t>((second - first) / sizeof(T));
    REQUIRE(stride > std::int64_t{1} << 31);
  }
};

std::vector<std::uint16_t> rows_of(std::initializer_list<double> values) {
  std::vector<std::uint16_t> bits;
  for (const double value : values)
    bits.insert(bits.end(), kDim, reference::to_bits(value, DType::kF16));
  return bits;
}

enum class Axis { kTokens, kHeads, kSlots };

// Two query tokens on two heads with zero logits; the values are 1 and 3, 5 and 7, so the outputs
// are 2 and 6. `far`: the axis whose stride is far, of q, o and lse (kTokens) or of K and V.
struct Far {
  Axis axis;
  DeviceTensors& device;
  AttentionTensors tensors;
  std::vector<DeviceAddress> o, lse;  // of the tokens

  void make_outputs() {
    const std::vector<std::uint16_t> zeros = rows_of({0, 0});
    const std::vector<float> nan(2, std::nanf(""));
    if (axis != Axis::kTokens) {
      const DeviceAddress q = device.put(rows_of({0, 0, 0, 0}), "q");
      const DeviceAddress out = device.put(rows_of({0, 0, 0, 0}), "o");
      const DeviceAddress sums = device.put(std::vector<float>(4), "lse");
      tensors.q = view_of(q, TensorType::kF16, {2, 2, kDim}, {2 * kDim, kDim, 1});
      tensors.o = view_of(out, TensorType::kF16, {2, 2, kDim}, {2 * kDim, kDim, 1});
      tensors.lse = view_of(sums, TensorType::kF32, {2, 2}, {2, 1});
      o = {out, out + 2 * kDim * 2};
      lse = {sums, sums + 8};
      return;
    }
    const FarRows<std::uint16_t> q(device, zeros, zeros, "q");
    const FarRows<std::uint16_t> out(device, zeros, zeros, "o");
    const FarRows<float> sums(device, nan, nan, "lse");
    tensors.q = view_of(q.first, TensorType::kF16, {2, 2, kDim}, {q.stride, kDim, 1});
    tensors.o = view_of(out.first, TensorType::kF16, {2, 2, kDim}, {out.stride, kDim, 1});
    tensors.lse = view_of(sums.first, TensorType::kF32, {2, 2}, {sums.stride, 1});
    o = {out.first, out.second};
    lse = {sums.first, sums.second};
  }
  // [pages][slots][heads], of one page that holds both keys.
  TensorView cache(double scale, const char* label) {
    const double a = 1 * scale, b = 3 * scale, c = 5 * scale, d = 7 * scale;
    const std::vector<std::int64_t> shape = {1, 2, 2, kDim};
    if (axis == Axis::kHeads) {
      const FarRows<std::uint16_t> heads(device, rows_of({a, b}), rows_of({c, d}), label);
      return view_of(heads.first, TensorType::kF16, shape, {2 * kDim, kDim, heads.stride, 1});
    }
    if (axis == Axis::kSlots) {
      const FarRows<std::uint16_t> slots(device, rows_of({a, c}), rows_of({b, d}), label);
      return view_of(slots.first, TensorType::kF16, shape, {2 * kDim, slots.stride, kDim, 1});
    }
    return view_of(device.put(rows_of({a, c, b, d}), label), TensorType::kF16, shape,
                   {4 * kDim, 2 * kDim, kDim, 1});
  }
};

std::string wrong_output(Far& far) {
  for (std::size_t token = 0; token < 2; ++token) {
    if (far.device.get<std::uint16_t>(far.o[token], 2 * kDim) != rows_of({2, 6}))
      return "o of token " + std::to_string(token);
    for (const float value : far.device.get<float>(far.lse[token], 2))
      if (!(std::abs(value - std::log(2.0f)) < 1e-5f))
        return "lse of token " + std::to_string(token);
  }
  return "";
}

std::string run(Engine& engine, Axis axis) {
  const auto kernels = engine.open(R"({"attnloom": 1, "kernel": "attention",
      "dtype": {"q": "f16", "kv": "f16", "o": "f16"}, "head_dim": {"qk": 64, "vo": 64}, "group_size": 1,
      "tile": {"q": 16, "kv": 64}, "layout": {"kv": "paged", "page_size": 2}, "variant": {"name": "plain"}})");
  REQUIRE(kernels.ok());
  Backend& backend = **engine.backend();
  DeviceTensors device(backend);
  Far far{.axis = axis, .device = device};
  far.make_outputs();
  far.tensors.k = far.cache(0, "k");
  far.tensors.v = far.cache(1, "v");
  far.tensors.page_indices =
      view_of(device.put(std::vector<std::int32_t>{0}, "pages"), TensorType::kI32, {1}, {1});
  const std::int32_t qo[] = {0, 2}, kv[] = {0, 1}, last[] = {2};
  const Workload workload{
      .q_heads = 2, .kv_heads = 2, .qo_indptr = qo, .kv_indptr = kv, .last_page_len = last};
  auto plan = PlanObject::create(*kernels,
                                 {.max_batch = 1, .max_qo_tokens = 2, .q_heads = 2, .kv_heads = 2});
  REQUIRE(plan.ok());
  std::vector<std::byte> staging((*plan)->staging_bytes());
  const DeviceAddress workspace = device.room((*plan)->workspace_bytes(), "workspace");
  REQUIRE(
      (*plan)->bind(workspace, (*plan)->workspace_bytes(), staging.data(), staging.size()).ok());
  REQUIRE((*plan)->update(workload, nullptr).ok());
  const Status ran = (*plan)->run(far.tensors, nullptr);
  if (!ran.ok()) return ran.to_string();
  REQUIRE(backend.synchronize(nullptr).ok());
  const std::string finding = device.finding();
  return finding != "" ? finding : wrong_output(far);
}

void check(Axis axis, const char* header, const std::vector<const char*>& products) {
  CHECK(run(*make_test_engine(), axis) == "");
  for (const char* product : products) {
    INFO(product);
    const auto mutant = make_edited_engine(0, [&](Source& source) {
      replace_once(source, header, product, "static_cast<int>(" + std::string(product) + ")");
    });
    CHECK(run(*mutant, axis) != "");
  }
}

}  // namespace

TEST_CASE("B49: rows of q, o and lse that lie more than 2^31 elements apart", "[offsets]") {
  check(Axis::kTokens, "loom/copy.cuh",
        {"query_row<Config>(args, request, token) * args.q_token_stride"});
  check(Axis::kTokens, "loom/epilogue.cuh",
        {"token(row) * args.o_token_stride", "token(row) * args.lse_token_stride"});
}

TEST_CASE("heads of K and V that lie more than 2^31 elements apart", "[offsets]") {
  check(Axis::kHeads, "loom/copy.cuh", {"work.kv_head() * head_stride"});
}

TEST_CASE("slots of a page that lie more than 2^31 elements apart", "[offsets]") {
  check(Axis::kSlots, "loom/copy.cuh",
        {"slot * args.k_token_stride", "slot * args.v_token_stride"});
}

}  // namespace attnloom::testing
