// SPDX-License-Identifier: Apache-2.0
// An opened spec as alm_kernel_describe and `attnloom explain` show it.
#include "engine/describe.h"

#include "cache/layer.h"
#include "engine/engine.h"
#include "engine/kernel_set.h"

namespace attnloom {

Json classes_json(const KernelChoice& choice) {
  Json classes = Json::array();
  for (const TileClass& tile : choice.classes)
    classes.push_back({{"q", tile.q}, {"kv", tile.kv}, {"stages", tile.stages}});
  return classes;
}

namespace {

Json figures_json(const EntryFigures& figures) {
  return {{"registers", figures.registers},
          {"static_shared_bytes", figures.static_shared_bytes},
          {"local_bytes", figures.local_bytes},
          {"spill_store_bytes", figures.spill_store_bytes},
          {"spill_load_bytes", figures.spill_load_bytes}};
}

Json stepped_down_json(const std::vector<SteppedDown>& steps) {
  Json all = Json::array();
  for (const SteppedDown& step : steps) {
    all.push_back({{"classes", classes_json(step.choice)},
                   {"request_key", step.request_key},
                   {"figures", figures_json(step.figures)}});
  }
  return all;
}

}  // namespace

std::string_view origin_name(Origin origin) {
  switch (origin) {
    case Origin::kCompiled:
      return "compiled";
    case Origin::kMemory:
      return "memory";
    case Origin::kDisk:
      return layer_name(Layer::kDisk);
    case Origin::kReadOnly:
      return layer_name(Layer::kReadOnly);
    case Origin::kBundle:
      return layer_name(Layer::kBundle);
    case Origin::kRemote:
      return layer_name(Layer::kRemote);
  }
  return "";
}

Json KernelSet::describe() const {
  Json kernels = Json::array();
  const std::vector<KernelChoice> now = choices();
  for (int i = 0; i < size(); ++i) {
    const Result<std::string> key = request_key(i);
    Json kernel = {{"family", now[i].family},
                   {"classes", classes_json(now[i])},
                   {"threads", now[i].threads},
                   {"shared_bytes", now[i].shared_bytes},
                   {"request_key", key.ok() ? Json(key.value()) : Json()}};
    if (const AcquiredKernel* got = acquired(i)) {
      kernel["key"] = got->kernel_key;
      kernel["source"] = origin_name(got->origin);
      kernel["target"] = got->target;
      kernel["registers"] = got->figures.registers;
      kernel["spill_bytes"] = got->figures.spill_store_bytes + got->figures.spill_load_bytes;
      kernel["figures"] = figures_json(got->figures);
      kernel["stepped_down"] = stepped_down_json(got->stepped_down);
    }
    kernels.push_back(std::move(kernel));
  }
  return {{"spec", spec_to_json(spec())}, {"kernels", std::move(kernels)}};
}

}  // namespace attnloom
