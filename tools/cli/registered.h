// SPDX-License-Identifier: Apache-2.0
// Which source text a service compiles: that of variants it was started with. Masks, dtypes, head
// dims and tiles are data and free. Not thread-safe while it is filled; then immutable.
#pragma once

#include <set>
#include <string>

#include "base/status.h"
#include "spec/spec.h"

namespace attnloom::cli {

class RegisteredVariants {
 public:
  // "shipped" (all of them), the name of a shipped variant, or a folder of spec files. Errors name
  // `what` or the file.
  Status add(const std::string& what);
  void allow_any() { any_ = true; }

  // True for a variant without text of its own, and for one whose functors and params are those of
  // a registered one.
  bool holds(const Variant& variant) const;
  std::size_t size() const { return known_.size(); }

 private:
  bool any_ = false;
  std::set<std::string> known_;
};

}  // namespace attnloom::cli
