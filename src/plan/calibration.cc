// SPDX-License-Identifier: Apache-2.0
#include "plan/calibration.h"

#include <algorithm>
#include <string>

#include "base/divide_up.h"

namespace attnloom {
namespace {

constexpr int kKvHeads = kCalibrationKvHeads;
constexpr int kGroup = kCalibrationGroup;
constexpr int kDim = kCalibrationDim;
constexpr double kTokenBytes = 2.0 * kDim * 2;  // keys and values of one head

// Of keys and values, on all heads.
double bytes_of(const CalibrationBatch& batch) {
  return 1.0 * batch.requests * batch.kv_tokens * kKvHeads * kTokenBytes;
}

double items_of_cta(const CalibrationTime& time) {
  return 1.0 * time.items / time.ctas;
}

// KV tiles that a causal prefill of as many queries as keys walks, on all heads.
double prefill_steps(const CalibrationBatch& batch) {
  const int rows = batch.query_tile / kGroup;  // query tokens of a tile
  double steps = 0;
  for (int end = rows; end <= batch.qo_tokens; end += rows)
    steps += static_cast<double>(divide_up(end, batch.kv_tile));
  return steps * kKvHeads;
}

std::string text_of(const std::array<CalibrationTime, kCalibration.size()>& times) {
  std::string text;
  for (std::size_t n = 0; n < times.size(); ++n) {
    if (n > 0) text += "; ";
    text += std::string(kCalibration[n].name) + " " + std::to_string(times[n].ns) + " ns";
  }
  return text;
}

}  // namespace

Result<DeviceProfile> fit_profile(const std::array<CalibrationTime, kCalibration.size()>& times) {
  DeviceProfile profile;
  profile.launch_ns = times[kEmpty].ns;
  // As many bytes as the long decode has, in more items.
  profile.item_ns = (times[kMany].ns - times[kLong].ns) /
                    (items_of_cta(times[kMany]) - items_of_cta(times[kLong]));
  profile.item_ns = std::max(profile.item_ns, 0.0);
  profile.bytes_per_ns =
      bytes_of(kCalibration[kLong]) /
      (times[kLong].ns - profile.launch_ns - items_of_cta(times[kLong]) * profile.item_ns);

  // One item a CTA, which walks its tiles at its own pace.
  const double kv_tile = kCalibration[kAlone].kv_tile;
  const double alone_steps = kCalibration[kAlone].kv_tokens / kv_tile;
  const double few_steps = kCalibration[kFew].kv_tokens / kv_tile;
  const double alone_step = (times[kAlone].ns - times[kFew].ns) / (alone_steps - few_steps);
  profile.cta_bytes_per_ns = kv_tile * kTokenBytes / alone_step;
  profile.latency_ns = times[kFew].ns - profile.launch_ns - few_steps * alone_step;
  profile.state_ns =
      times[kSplit].ns - profile.launch_ns - profile.latency_ns - alone_steps / 2 * alone_step;
  profile.state_ns = std::max(profile.state_ns, 0.0);

  // A tile of half the keys has half the products and the same barrier.
  const auto step_of = [&](CalibrationStep step) {
    const double ns =
        times[step].ns - profile.launch_ns - items_of_cta(times[step]) * profile.latency_ns;
    return ns * times[step].ctas / prefill_steps(kCalibration[step]);
  };
  const double wide = step_of(kWide);
  const double narrow = step_of(kNarrow);
  const double products = 2 * (wide - narrow);
  profile.step_ns = std::max(wide - products, 0.0);
  profile.flops_per_ns = 2.0 * kCalibration[kWide].query_tile * kCalibration[kWide].kv_tile * 2 *
                         kDim / products * times[kWide].ctas;

  for (const double figure :
       {profile.bytes_per_ns, profile.flops_per_ns, profile.latency_ns, profile.cta_bytes_per_ns}) {
    if (figure > 0) continue;
    return make_error(Code::kArgumentInvalid, "times",
                      "the launches took times that fit no device: " + text_of(times),
                      "measure again while nothing else runs on the device");
  }
  return profile;
}

}  // namespace attnloom
