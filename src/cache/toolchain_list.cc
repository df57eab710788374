// SPDX-License-Identifier: Apache-2.0
#include "cache/toolchain_list.h"

#include <algorithm>
#include <cstdio>
#include <tuple>

#include "cache/entry.h"

namespace attnloom {
namespace {

constexpr std::string_view kTitle = "attnloom-toolchains 1\n";

}  // namespace

std::vector<Fingerprint> parse_toolchains(std::string_view text) {
  std::vector<Fingerprint> list;
  if (text.substr(0, kTitle.size()) != kTitle) return list;
  text.remove_prefix(kTitle.size());
  while (!text.empty()) {
    const std::string line(text.substr(0, text.find('\n')));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    char hex[17] = {};
    Fingerprint item;
    const int fields = std::sscanf(line.c_str(), "%16[0-9a-f] %4d.%4d %7d", hex, &item.cuda_major,
                                   &item.cuda_minor, &item.least_driver);
    item.hex = hex;
    if (fields == 4 && is_fingerprint(item.hex)) list.push_back(item);
  }
  return list;
}

std::string print_toolchains(const std::vector<Fingerprint>& list) {
  std::string text(kTitle);
  for (const Fingerprint& item : list) {
    text += item.hex + " " + std::to_string(item.cuda_major) + "." +
            std::to_string(item.cuda_minor) + " " + std::to_string(item.least_driver) + "\n";
  }
  return text;
}

bool add_toolchain(std::vector<Fingerprint>& list, const Fingerprint& added) {
  const auto same = [&](const Fingerprint& item) { return item.hex == added.hex; };
  if (std::any_of(list.begin(), list.end(), same)) return false;
  const auto not_newer = [&](const Fingerprint& item) {
    return std::tie(item.cuda_major, item.cuda_minor) <=
           std::tie(added.cuda_major, added.cuda_minor);
  };
  list.insert(std::find_if(list.begin(), list.end(), not_newer), added);
  return true;
}

}  // namespace attnloom
