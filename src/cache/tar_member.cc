// SPDX-License-Identifier: Apache-2.0
#include "cache/tar_member.h"

#include <cstdio>
#include <numeric>

namespace attnloom {
namespace {

constexpr std::size_t kBlockBytes = 512;
// Offsets of a ustar header (POSIX.1-1988).
constexpr std::size_t kMode = 100;
constexpr std::size_t kOwner = 108;
constexpr std::size_t kGroup = 116;
constexpr std::size_t kSize = 124;
constexpr std::size_t kTime = 136;
constexpr std::size_t kSum = 148;
constexpr std::size_t kSumBytes = 8;
constexpr std::size_t kType = 156;
constexpr std::size_t kMagic = 257;
constexpr std::size_t kPrefix = 345;
constexpr std::string_view kUstar{
    "ustar\0"
    "00",
    8};

void put(std::string& header, std::size_t at, std::string_view text) {
  header.replace(at, text.size(), text);
}

void put_octal(std::string& header, std::size_t at, int digits, std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "%0*llo", digits, static_cast<unsigned long long>(value));
  put(header, at, text);
}

std::string header_of(std::string_view name, std::uint64_t content_bytes) {
  std::string header(kBlockBytes, '\0');
  const std::size_t slash = name.rfind('/');
  if (slash == std::string_view::npos) {
    put(header, 0, name);
  } else {
    put(header, 0, name.substr(slash + 1));
    put(header, kPrefix, name.substr(0, slash));
  }
  put_octal(header, kMode, 7, 0644);
  put_octal(header, kOwner, 7, 0);
  put_octal(header, kGroup, 7, 0);
  put_octal(header, kSize, 11, content_bytes);
  put_octal(header, kTime, 11, 0);
  header[kType] = '0';
  put(header, kMagic, kUstar);
  put(header, kSum, std::string(kSumBytes, ' '));  // the sum counts its own field as blanks
  const unsigned sum = std::accumulate(header.begin(), header.end(), 0u, [](unsigned all, char c) {
    return all + static_cast<unsigned char>(c);
  });
  put_octal(header, kSum, 6, sum);
  header[kSum + 6] = '\0';
  return header;
}

}  // namespace

std::uint64_t tar_member_bytes(std::uint64_t content_bytes) {
  return kBlockBytes + (content_bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

std::string tar_member(std::string_view name, std::string_view content) {
  std::string member = header_of(name, content.size());
  member += content;
  member.resize(tar_member_bytes(content.size()), '\0');
  return member;
}

std::optional<std::string_view> tar_content(std::string_view member, std::string_view name,
                                            std::uint64_t content_bytes) {
  if (member.size() != tar_member_bytes(content_bytes)) return std::nullopt;
  if (member.substr(0, kBlockBytes) != header_of(name, content_bytes)) return std::nullopt;
  const std::string_view padding = member.substr(kBlockBytes + content_bytes);
  if (padding.find_first_not_of('\0') != std::string_view::npos) return std::nullopt;
  return member.substr(kBlockBytes, content_bytes);
}

std::string tar_end() {
  return std::string(2 * kBlockBytes, '\0');
}

}  // namespace attnloom
