// SPDX-License-Identifier: Apache-2.0
#include "cache/pins.h"

#include "cache/entry.h"
#include "cache/layout.h"

namespace attnloom {

Status Pins::add(const std::vector<std::string>& request_keys) {
  const std::string folder = layout::pins(base_);
  ATTNLOOM_CHECK(files_.make_directories(folder));
  for (const std::string& key : request_keys) {
    const std::string path = folder + "/" + key;
    if (files_.info(path).exists) continue;
    ATTNLOOM_CHECK(files_.publish(layout::temps(base_), path, "", Publish::kFirstWins));
  }
  return ok_status();
}

Status Pins::remove(const std::vector<std::string>& request_keys) {
  for (const std::string& key : request_keys)
    ATTNLOOM_CHECK(files_.remove(layout::pins(base_) + "/" + key));
  return ok_status();
}

std::set<std::string> Pins::all() const {
  std::set<std::string> keys;
  const auto names = files_.list(layout::pins(base_));
  if (!names.ok()) return keys;
  for (const std::string& name : *names)
    if (is_key(name)) keys.insert(name);
  return keys;
}

}  // namespace attnloom
