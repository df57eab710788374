// SPDX-License-Identifier: Apache-2.0
#include "cache/zstd_frame.h"

#include <zstd.h>

#include <memory>

namespace attnloom {

std::string compress_frame(std::string_view bytes, int level, FrameChecksum checksum) {
  const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(),
                                                                     &ZSTD_freeCCtx);
  if (!context) return {};
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, level);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, checksum == FrameChecksum::kContent);
  std::string frame(ZSTD_compressBound(bytes.size()), '\0');
  const std::size_t size =
      ZSTD_compress2(context.get(), frame.data(), frame.size(), bytes.data(), bytes.size());
  frame.resize(ZSTD_isError(size) != 0 ? 0 : size);
  return frame;
}

std::optional<std::string> decompress_frame(std::string_view frame, std::uint64_t bytes) {
  // Two frames, or one with something behind it, would unpack as well.
  if (frame_bytes(frame) != frame.size()) return std::nullopt;
  // A claim that the frame does not share costs no memory.
  if (frame_content_bytes(frame) != bytes) return std::nullopt;
  std::string text(bytes, '\0');
  const std::size_t got = ZSTD_decompress(text.data(), text.size(), frame.data(), frame.size());
  if (ZSTD_isError(got) != 0 || got != bytes) return std::nullopt;
  return text;
}

std::optional<std::uint64_t> frame_content_bytes(std::string_view prefix) {
  const unsigned long long bytes = ZSTD_getFrameContentSize(prefix.data(), prefix.size());
  if (bytes == ZSTD_CONTENTSIZE_UNKNOWN || bytes == ZSTD_CONTENTSIZE_ERROR) return std::nullopt;
  return bytes;
}

std::uint64_t most_frame_bytes(std::uint64_t content_bytes) {
  return ZSTD_compressBound(content_bytes);
}

std::uint64_t frame_bytes(std::string_view bytes) {
  const std::size_t size = ZSTD_findFrameCompressedSize(bytes.data(), bytes.size());
  return ZSTD_isError(size) != 0 ? 0 : size;
}

}  // namespace attnloom
