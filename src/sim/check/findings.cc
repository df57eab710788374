// SPDX-License-Identifier: Apache-2.0
#include "sim/check/findings.h"

namespace attnloom::sim {

std::string Findings::place(const Ins& ins) const {
  const std::string& known = module_.places[ins.place];
  return known.empty() ? "ptx:" + std::to_string(ins.line) : known;
}

std::string Findings::inlined_at(const Ins& ins) const {
  const std::string& caller = module_.callers[ins.place];
  std::string text = " (ptx:" + std::to_string(ins.line);
  if (!caller.empty()) text += ", inlined at " + caller;
  return text + ")";
}

Finding& Findings::group(std::string_view kind, const Ins& ins) {
  auto [it, is_new] = cache_.try_emplace({kind.data(), &ins}, nullptr);
  if (is_new) {
    Finding& f = groups_[{std::string(kind), place(ins)}];
    if (f.kind.empty()) {
      f.kind = kind;
      f.kernel = kernel_;
      f.place = place(ins);
    }
    it->second = &f;
  }
  return *it->second;
}

std::vector<Finding> Findings::take() {
  std::vector<Finding> result;
  for (auto& [key, finding] : groups_) result.push_back(std::move(finding));
  groups_.clear();
  cache_.clear();
  return result;
}

}  // namespace attnloom::sim
