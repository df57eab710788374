// SPDX-License-Identifier: Apache-2.0
#include "tools/runner/case_runner.h"

#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reference/number_format.h"
#include "runtime/sim_backend.h"
#include "runtime/tensor_checks.h"
#include "spec/parse.h"
#include "tools/runner/device_buffers.h"

namespace attnloom {
namespace {

Result<TensorView> cache_view(DeviceBuffers& buffers, const CacheImage& image, DType dtype,
                              const std::string& label) {
  ATTNLOOM_TRY(const DeviceAddress data, buffers.input(image.bytes, label));
  TensorView view{.data = data, .type = tensor_type_of(dtype), .rank = image.rank};
  std::copy(image.shape, image.shape + image.rank, view.shape);
  std::copy(image.strides, image.strides + image.rank, view.strides);
  return view;
}

Status place_scales(DeviceBuffers& buffers, const CaseFile& file, AttentionTensors& tensors) {
  if (file.spec.variant.kv_scale == KvScale::kNone) return ok_status();
  const std::int64_t shape[] = {std::ssize(file.k_scale)};
  ATTNLOOM_TRY(const DeviceAddress k,
               buffers.input(std::as_bytes(std::span(file.k_scale)), "k_scale"));
  ATTNLOOM_TRY(const DeviceAddress v,
               buffers.input(std::as_bytes(std::span(file.v_scale)), "v_scale"));
  tensors.k_scale = dense_tensor(TensorType::kF32, shape, k);
  tensors.v_scale = dense_tensor(TensorType::kF32, shape, v);
  return ok_status();
}

Status place_inputs(DeviceBuffers& buffers, const CaseFile& file, AttentionTensors& tensors) {
  ATTNLOOM_TRY(const DeviceAddress q, buffers.input(std::as_bytes(std::span(file.q.bits)), "q"));
  tensors.q = dense_tensor(tensor_type_of(file.spec.dtype.q), file.q.shape, q);
  ATTNLOOM_TRY(tensors.k, cache_view(buffers, file.k_image, file.spec.dtype.kv, "k"));
  ATTNLOOM_TRY(tensors.v, cache_view(buffers, file.v_image, file.spec.dtype.kv, "v"));
  if (file.spec.layout.kv == KvLayout::kPaged) {
    const std::int64_t shape[] = {static_cast<std::int64_t>(file.page_indices.size())};
    ATTNLOOM_TRY(const DeviceAddress pages,
                 buffers.input(std::as_bytes(std::span(file.page_indices)), "page_indices"));
    tensors.page_indices = dense_tensor(TensorType::kI32, shape, pages);
  }
  if (file.spec.layout.kv == KvLayout::kBsr) {
    const std::int64_t shape[] = {static_cast<std::int64_t>(file.block_indices.size())};
    ATTNLOOM_TRY(const DeviceAddress blocks,
                 buffers.input(std::as_bytes(std::span(file.block_indices)), "block_indices"));
    tensors.block_indices = dense_tensor(TensorType::kI32, shape, blocks);
  }
  if (file.spec.variant.mask.custom) {
    const std::vector<std::byte> packed = file.packed_masks();
    const std::int64_t shape[] = {static_cast<std::int64_t>(packed.size())};
    ATTNLOOM_TRY(const DeviceAddress mask, buffers.input(packed, "custom_mask"));
    tensors.custom_mask = dense_tensor(TensorType::kU8, shape, mask);
  }
  ATTNLOOM_CHECK(place_scales(buffers, file, tensors));
  for (const CasePointerParam& param : file.pointers) {
    ATTNLOOM_TRY(const DeviceAddress data, buffers.input(param.bytes, param.name));
    tensors.params.push_back({param.name, dense_tensor(pointee_of(param.type), param.shape, data)});
  }
  return ok_status();
}

Status place_outputs(DeviceBuffers& buffers, const CaseFile& file, AttentionTensors& tensors) {
  const std::int64_t o_shape[] = {file.qo_tokens(), file.q_heads, file.spec.head_dim.vo};
  const auto rows = static_cast<std::size_t>(o_shape[0] * o_shape[1]);
  ATTNLOOM_TRY(const DeviceAddress o,
               buffers.poisoned(rows * static_cast<std::size_t>(o_shape[2]) * 2, "o"));
  tensors.o = dense_tensor(tensor_type_of(file.spec.dtype.o), o_shape, o);
  if (!file.spec.variant.softmax) return ok_status();
  ATTNLOOM_TRY(const DeviceAddress lse, buffers.poisoned(rows * 4, "lse"));
  tensors.lse = dense_tensor(TensorType::kF32, std::span(o_shape, 2), lse);
  return ok_status();
}

// Between launches of one plan: what a launch leaves out must not be what the one before it wrote.
Status poison_outputs(Backend& backend, const CaseFile& file, const AttentionTensors& tensors) {
  const auto rows =
      static_cast<std::size_t>(file.qo_tokens()) * static_cast<std::size_t>(file.q_heads);
  const std::vector<std::byte> poison(rows * static_cast<std::size_t>(file.spec.head_dim.vo) * 2,
                                      std::byte{0xff});
  ATTNLOOM_CHECK(backend.copy_in(tensors.o.data, poison));
  if (!tensors.lse.given()) return ok_status();
  return backend.copy_in(tensors.lse.data, std::span(poison).first(rows * 4));
}

Result<reference::Output> read_back(Backend& backend, const CaseFile& file,
                                    const AttentionTensors& tensors) {
  reference::Output output;
  const auto rows =
      static_cast<std::size_t>(file.qo_tokens()) * static_cast<std::size_t>(file.q_heads);
  std::vector<std::uint16_t> bits(rows * static_cast<std::size_t>(file.spec.head_dim.vo));
  ATTNLOOM_CHECK(backend.copy_out(std::as_writable_bytes(std::span(bits)), tensors.o.data));
  output.o.reserve(bits.size());
  for (std::uint16_t x : bits) output.o.push_back(reference::from_bits(x, file.spec.dtype.o));
  if (tensors.lse.given()) {
    std::vector<float> lse(rows);
    ATTNLOOM_CHECK(backend.copy_out(std::as_writable_bytes(std::span(lse)), tensors.lse.data));
    output.lse.assign(lse.begin(), lse.end());
  }
  return output;
}

}  // namespace

Status named_after_variant(Status status, const CaseFile& file) {
  if (status.code != Code::kLoadFailed || !status.path.starts_with("ptx:")) return status;
  return make_error(Code::kLoadFailed, "$.spec.variant",
                    "the simulator cannot execute a functor or kernel of variant \"" +
                        file.spec.variant.name + "\": " + status.path + ": " + status.cause,
                    "functors do without printf, new, recursion and calls that are not inlined; "
                    "a real device may run them");
}

Result<CaseRun> run_case(Engine& engine, const CaseFile& file, const RunOptions& options) {
  CaseRun run;
  ATTNLOOM_TRY(run.kernels, engine.open(ParsedSpec{file.spec, file.field_lines}));
  ATTNLOOM_TRY(Backend* const backend, engine.backend());
  PlanLimits limits = options.limits;
  limits.max_batch = file.batch();
  limits.max_qo_tokens = file.qo_tokens();
  limits.q_heads = file.q_heads;
  limits.kv_heads = file.kv_heads;
  ATTNLOOM_TRY(std::unique_ptr<PlanObject> plan, PlanObject::create(run.kernels, limits));
  DeviceBuffers buffers(*backend);
  AttentionTensors tensors;
  ATTNLOOM_CHECK(place_inputs(buffers, file, tensors));
  ATTNLOOM_CHECK(place_outputs(buffers, file, tensors));
  ATTNLOOM_TRY(const DeviceAddress workspace,
               buffers.poisoned(plan->workspace_bytes(), "workspace"));
  std::vector<std::byte> staging(plan->staging_bytes());
  ATTNLOOM_CHECK(plan->bind(workspace, plan->workspace_bytes(), staging.data(), staging.size()));
  ATTNLOOM_CHECK(plan->update(file.workload(), nullptr));
  for (int i = 0; i < options.launches; ++i) {
    if (i > 0) ATTNLOOM_CHECK(poison_outputs(*backend, file, tensors));
    ATTNLOOM_CHECK(plan->run(tensors, nullptr));
  }
  ATTNLOOM_CHECK(backend->synchronize(nullptr));
  ATTNLOOM_TRY(run.output, read_back(*backend, file, tensors));
  run.kernel = plan->plan()->kernel;
  run.grid = plan->plan()->grid;
  run.figures = plan->plan()->figures;
  if (backend->device().simulated) run.report = static_cast<SimBackend*>(backend)->take_report();
  return run;
}

}  // namespace attnloom
