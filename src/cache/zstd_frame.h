// SPDX-License-Identifier: Apache-2.0
// One zstd frame as a value. Equal bytes give equal frames with one build of the library; thread-
// safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace attnloom {

enum class FrameChecksum { kNone, kContent };

// "" where memory is short. The frame tells its content's size.
std::string compress_frame(std::string_view bytes, int level, FrameChecksum checksum);
// nullopt unless `frame` is one frame that unpacks to exactly `bytes` bytes. Takes that much
// memory, so the caller bounds it first.
std::optional<std::string> decompress_frame(std::string_view frame, std::uint64_t bytes);

// What the frame at the beginning of `prefix` says it unpacks to; nullopt where it does not say, or
// is none. Needs the first 18 bytes only.
std::optional<std::uint64_t> frame_content_bytes(std::string_view prefix);
// How long a frame of so much content can be at most, and how long the one at the beginning of
// `bytes` is; 0 where it is cut or damaged.
std::uint64_t most_frame_bytes(std::uint64_t content_bytes);
std::uint64_t frame_bytes(std::string_view bytes);

}  // namespace attnloom
