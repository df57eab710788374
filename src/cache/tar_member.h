// SPDX-License-Identifier: Apache-2.0
// One member of a tar archive (ustar): header, content, zeros up to a multiple of 512. Nothing but
// name and content decides its bytes: owner 0, mode 0644, time 0. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace attnloom {

// REQUIRES: what follows the name's last slash has at most 100 characters, what stands before it at
// most 155.
std::string tar_member(std::string_view name, std::string_view content);
// The content, or nullopt where `member` is not byte for byte what tar_member would give.
std::optional<std::string_view> tar_content(std::string_view member, std::string_view name,
                                            std::uint64_t content_bytes);
std::uint64_t tar_member_bytes(std::uint64_t content_bytes);
// What ends an archive.
std::string tar_end();

}  // namespace attnloom
