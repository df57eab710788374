// SPDX-License-Identifier: Apache-2.0
#include "engine/row_launch.h"

#include <limits>
#include <span>
#include <string>

#include "engine/engine_state.h"

namespace attnloom {
namespace {

constexpr std::int64_t kLanesPerRow = 8;  // of merge.cuh and loom/lane_row.cuh

Status check_kind(const KernelSet& kernels, bool fits, const char* wanted) {
  if (fits) return ok_status();
  return make_error(Code::kArgumentInvalid, "kernel",
                    std::string("must be opened from a spec of \"kernel\": ") + wanted +
                        "; this is " + std::string(json_name(kernels.spec().kernel)));
}

// `named` is the tensor that an error blames for too many rows.
Status launch_rows(KernelSet& kernels, std::int64_t rows, const char* named,
                   std::span<const std::byte> args, Stream stream) {
  ATTNLOOM_TRY(Backend * device, kernels.engine().backend());
  ATTNLOOM_TRY(const AcquiredKernel* kernel, kernels.acquire(0, stream));
  const std::int64_t rows_per_cta = kernel->choice.threads / kLanesPerRow;
  const std::int64_t ctas = (rows + rows_per_cta - 1) / rows_per_cta;
  if (ctas > std::numeric_limits<int>::max())  // the limit of a grid's x, the only large one
    return make_error(Code::kTensorInvalid, named,
                      std::to_string(rows) + " rows are more than one launch can have");
  if (ctas == 0) return ok_status();
  LaunchShape shape;
  shape.grid = static_cast<unsigned>(ctas);
  shape.block = static_cast<unsigned>(kernel->choice.threads);
  shape.shared_bytes = static_cast<unsigned>(kernel->choice.shared_bytes);
  kernels.engine().state().retain_if_captured(*kernel->built, stream);
  ATTNLOOM_CHECK(device->launch(*kernel->loaded, shape, args, stream));
  count(kernels.engine().state().tallies.launches);
  return ok_status();
}

}  // namespace

Status run_merge(KernelSet& kernels, const MergeTensors& tensors, Stream stream) {
  const KernelKind kind = kernels.spec().kernel;
  ATTNLOOM_CHECK(check_kind(kernels, kind == KernelKind::kMerge, "\"merge\""));
  ATTNLOOM_CHECK(kernels.engine().backend().status());
  ATTNLOOM_TRY(const loom::MergeArgs args, merge_args(kernels.spec(), tensors));
  return launch_rows(kernels, std::int64_t{args.tokens} * args.heads, "o",
                     std::as_bytes(std::span(&args, 1)), stream);
}

Status run_append(KernelSet& kernels, const AppendTensors& tensors, Stream stream) {
  const KernelKind kind = kernels.spec().kernel;
  const bool rotates = kind == KernelKind::kAppendRope;
  ATTNLOOM_CHECK(
      check_kind(kernels, rotates || kind == KernelKind::kAppend, "\"append\" or \"append_rope\""));
  ATTNLOOM_CHECK(kernels.engine().backend().status());
  ATTNLOOM_TRY(const loom::AppendRopeArgs args, append_args(kernels.spec(), tensors));
  const std::int64_t rows =
      args.append.tokens * (std::int64_t{args.append.kv_heads} + args.q_heads);
  const std::span<const std::byte> bytes =
      rotates ? std::as_bytes(std::span(&args, 1)) : std::as_bytes(std::span(&args.append, 1));
  return launch_rows(kernels, rows, "key", bytes, stream);
}

Status run_page_copy(KernelSet& kernels, const PageCopyTensors& tensors, Stream stream) {
  const Spec& spec = kernels.spec();
  ATTNLOOM_CHECK(check_kind(kernels, spec.kernel == KernelKind::kPageCopy, "\"page_copy\""));
  ATTNLOOM_CHECK(kernels.engine().backend().status());
  ATTNLOOM_TRY(const loom::PageCopyArgs args, page_copy_args(spec, tensors));
  // Each factor may have 31 bits.
  std::int64_t rows = 0;
  if (__builtin_mul_overflow(std::int64_t{args.count} * args.kv_heads,
                             std::int64_t{spec.layout.page_size}, &rows))
    rows = std::numeric_limits<std::int64_t>::max() / 2;
  return launch_rows(kernels, rows, "pairs", std::as_bytes(std::span(&args, 1)), stream);
}

}  // namespace attnloom
