// SPDX-License-Identifier: Apache-2.0
// What SandboxToolchain and the program attnloom-cc say to each other. The program is given an
// order and then a Source; it answers with a greeting, which it wrote before it read the Source and
// which can therefore be believed, and then with what it compiled. Both sides are of one build:
// the format has no versions. Decoders take any bytes. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "compile/artifact.h"
#include "compile/toolchain.h"
#include "render/source.h"

namespace attnloom {

// Far above what is sent: programs have some 100 KB, answers under 4 MB.
inline constexpr std::uint64_t kMostSourceBytes = 16 << 20;
inline constexpr std::uint64_t kMostAnswerBytes = 64 << 20;
inline constexpr std::size_t kFrameHeadBytes = 8;
// Exit status of a worker that crashed for want of memory.
inline constexpr int kOutOfMemoryExit = 77;

struct WorkerOrder {
  NvrtcSearch search;
  std::uint64_t address_space_bytes = 0;
  std::uint64_t cpu_seconds = 0;
  bool weak_sandbox = false;
};

// The program and the compiler's words about it; the rest of an Artifact follows from these.
struct CompiledText {
  std::string cubin;
  std::string ptx;
  std::string log;
};

// The length, then the payload.
std::string frame(std::string_view payload);
// Of the first kFrameHeadBytes of a frame.
std::uint64_t frame_length(std::string_view head);
// Removes the first frame of `bytes` and returns its payload; nothing where it is not whole.
std::optional<std::string_view> take_frame(std::string_view& bytes);

std::string encode(const WorkerOrder& order);
std::string encode(const Source& source);
std::string encode(const Result<Fingerprint>& greeting);
std::string encode(const Result<CompiledText>& answer);

// Errors: INTERNAL for bytes that are no such message; otherwise the error that was sent, its texts
// cut and without control characters.
Result<WorkerOrder> decode_order(std::string_view bytes);
Result<Source> decode_source(std::string_view bytes);
Result<Fingerprint> decode_greeting(std::string_view bytes);
Result<CompiledText> decode_answer(std::string_view bytes);

}  // namespace attnloom
