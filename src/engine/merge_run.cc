// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <string>

#include "engine/engine_state.h"
#include "engine/plan_object.h"

namespace attnloom {
namespace {

constexpr std::int64_t kLanesPerRow = 8;  // threads of merge.cuh that share one (token, head) row

}  // namespace

Status run_merge(KernelSet& kernels, const MergeTensors& tensors, Stream stream) {
  if (kernels.spec().kernel != KernelKind::kMerge) {
    return make_error(Code::kArgumentInvalid, "kernel",
                      "must be opened from a spec of \"kernel\": \"merge\"; this is " +
                          std::string(json_name(kernels.spec().kernel)));
  }
  ATTNLOOM_TRY(Backend * device, kernels.engine().backend());
  ATTNLOOM_TRY(const loom::MergeArgs args, merge_args(kernels.spec(), tensors));
  ATTNLOOM_TRY(const AcquiredKernel* kernel, kernels.acquire(0, stream));
  const std::int64_t rows_per_cta = kernel->choice.threads / kLanesPerRow;
  const std::int64_t rows = std::int64_t{args.tokens} * args.heads;
  const std::int64_t ctas = (rows + rows_per_cta - 1) / rows_per_cta;
  if (ctas > std::numeric_limits<int>::max())  // the limit of a grid's x, the only large one
    return make_error(Code::kTensorInvalid, "o",
                      std::to_string(rows) + " rows are more than one launch can have");
  if (ctas == 0) return ok_status();
  LaunchShape shape;
  shape.grid = static_cast<unsigned>(ctas);
  shape.block = static_cast<unsigned>(kernel->choice.threads);
  shape.shared_bytes = static_cast<unsigned>(kernel->choice.shared_bytes);
  ATTNLOOM_CHECK(
      device->launch(*kernel->loaded, shape, std::as_bytes(std::span(&args, 1)), stream));
  count(kernels.engine().state().tallies.launches);
  return ok_status();
}

}  // namespace attnloom
