// SPDX-License-Identifier: Apache-2.0
// Host tensors in the simulator's memory for one launch. That memory has addresses of its own, made
// up so that a wild access is seen, so what lies on the host is copied in, and what was written
// copied out.
//
// Tensors that overlap on the host overlap there, in one allocation, and an address keeps its
// remainder by 256: what the library refuses on a GPU it refuses here. Needs no GIL; ends before
// its context.
#pragma once

#include <attnloom/attnloom.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace attnloom::python {

class Staging {
 public:
  explicit Staging(alm_context* context) : context_(context) {}

  // `tensor` must stay where it is; copy_in gives it its address in the simulator.
  void add(alm_tensor* tensor, std::string label, bool is_output);
  void copy_in();
  void copy_out();

 private:
  struct Part {
    alm_tensor* tensor;
    std::string label;
    bool is_output;
    std::uintptr_t begin;
    std::uintptr_t end;
    std::size_t range = 0;
  };
  struct Range {
    std::uintptr_t begin;
    std::uintptr_t end;
    std::string label;
    std::optional<Memory> memory;
  };

  void merge_ranges();

  alm_context* context_;
  std::vector<Part> parts_;
  std::vector<Range> ranges_;
};

}  // namespace attnloom::python
