// SPDX-License-Identifier: Apache-2.0
#include "python/core/workload.h"

#include <nanobind/stl/string.h>

namespace attnloom::python {
namespace {

struct ArrayPlace {
  const char* name;
  alm_index_array alm_workload::*array;
};
constexpr ArrayPlace kArrays[] = {
    {"qo_indptr", &alm_workload::qo_indptr},         {"kv_indptr", &alm_workload::kv_indptr},
    {"last_page_len", &alm_workload::last_page_len}, {"page_indices", &alm_workload::page_indices},
    {"kv_start", &alm_workload::kv_start},           {"block_indptr", &alm_workload::block_indptr},
    {"block_indices", &alm_workload::block_indices},
};

}  // namespace

WorkloadArrays::WorkloadArrays(const nb::dict& given) : workload_(zeroed<alm_workload>()) {
  for (const ArrayPlace& place : kArrays)
    workload_.*place.array = read(nb::object(given[place.name]), place.name);
  workload_.pool_pages = nb::cast<std::int64_t>(given["pool_pages"]);
  workload_.kv_capacity = nb::cast<std::int64_t>(given["kv_capacity"]);
  workload_.scale = nb::cast<float>(given["scale"]);
  workload_.window_left = nb::cast<std::int32_t>(given["window_left"]);
  read_scalars(nb::cast<nb::dict>(given["params"]));
  read_levels(nb::cast<nb::list>(given["levels"]));
}

alm_index_array WorkloadArrays::read(nb::handle object, const char* name) {
  arrays_.push_back(borrow_indices(object, name));
  return arrays_.back().view();
}

void WorkloadArrays::read_scalars(const nb::dict& params) {
  for (const auto& [name, value] : params) {
    names_.push_back(nb::cast<std::string>(name));
    scalars_.push_back({names_.back().c_str(), nb::cast<double>(value)});
  }
  workload_.scalars = scalars_.data();
  workload_.scalar_count = scalars_.size();
}

void WorkloadArrays::read_levels(const nb::list& levels) {
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const nb::tuple level = nb::cast<nb::tuple>(levels[i]);
    const std::string field = "levels[" + std::to_string(i) + "].";
    alm_level made = {};
    names_.push_back(field + "qo_indptr");
    made.qo_indptr = read(nb::object(level[0]), names_.back().c_str());
    names_.push_back(field + "page_indptr");
    made.page_indptr = read(nb::object(level[1]), names_.back().c_str());
    levels_.push_back(made);
  }
  workload_.levels = levels_.data();
  workload_.level_count = levels_.size();
}

}  // namespace attnloom::python
