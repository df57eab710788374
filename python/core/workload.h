// SPDX-License-Identifier: Apache-2.0
// The batch of one plan, from Python's dict to alm_workload. Lives for one call; made and destroyed
// under the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <attnloom/attnloom.hpp>
#include <deque>
#include <string>
#include <vector>

#include "python/core/dlpack.h"

namespace attnloom::python {

class WorkloadArrays {
 public:
  // REQUIRES: every key of Attention._workload.
  explicit WorkloadArrays(const nb::dict& given);
  WorkloadArrays(const WorkloadArrays&) = delete;

  const alm_workload& get() const { return workload_; }

 private:
  alm_index_array read(nb::handle object, const char* name);
  void read_scalars(const nb::dict& params);
  void read_levels(const nb::list& levels);

  alm_workload workload_;
  std::deque<Indices> arrays_;
  std::deque<std::string> names_;
  std::vector<alm_scalar> scalars_;
  std::vector<alm_level> levels_;
};

}  // namespace attnloom::python
