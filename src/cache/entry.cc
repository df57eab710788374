// SPDX-License-Identifier: Apache-2.0
#include "cache/entry.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/format_version.h"
#include "base/sha256.h"
#include "cache/entry_metadata.h"
#include "cache/zstd_frame.h"
#include "compile/elf.h"

namespace attnloom {
namespace {

constexpr std::string_view kMagic = "ALK1";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kKeyBytes = 32;
constexpr std::size_t kFingerprintBytes = 8;
constexpr std::size_t kDigestBytes = 32;
constexpr std::size_t kKeyOffset = 40;
constexpr std::size_t kFingerprintOffset = kKeyOffset + kKeyBytes;
constexpr std::size_t kDigestOffset = kFingerprintOffset + kFingerprintBytes;
constexpr std::size_t kTrailerBytes = kDigestOffset + kDigestBytes;
constexpr int kZstdLevel =
    3;  // PTX shrinks 8-fold in 1 ms; -19 takes 50 times as long for a fifth less
// A frame that claims more than this is not ours: the largest kernel's PTX is under 2 MB.
constexpr std::uint64_t kMostPtxBytes = 256 << 20;

template <class Number>
void append_number(std::string& out, Number value) {
  for (std::size_t i = 0; i < sizeof value; ++i)
    out.push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

bool is_hex(std::string_view text, std::size_t digits) {
  return text.size() == digits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

void append_hex(std::string& out, std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    out.push_back(static_cast<char>(digit(hex[i]) << 4 | digit(hex[i + 1])));
  }
}

std::string hex_at(std::string_view bytes, std::size_t offset, std::size_t count) {
  return to_hex({reinterpret_cast<const std::uint8_t*>(bytes.data()) + offset, count});
}

// Without its PTX an entry is still good for a GPU, so a failure is no PTX.
std::string pack(const std::string& text) {
  return text.empty() ? "" : compress_frame(text, kZstdLevel, FrameChecksum::kNone);
}

Status corrupt(const std::string& cause) {
  return make_error(Code::kCacheCorrupt, "", cause);
}

Result<std::string> unpack_ptx(std::string_view packed, std::uint64_t bytes) {
  if (bytes > kMostPtxBytes) return corrupt("the PTX claims " + std::to_string(bytes) + " bytes");
  std::optional<std::string> text = decompress_frame(packed, bytes);
  if (!text) return corrupt("the PTX cannot be unpacked");
  return std::move(*text);
}

struct Lengths {
  std::uint64_t cubin = 0;
  std::uint64_t ptx = 0;
  std::uint64_t ptx_unpacked = 0;
  std::uint64_t metadata = 0;
};

// Adds the trailer to the parts.
std::string seal(std::string bytes, const Lengths& lengths, std::string_view request_key,
                 std::string_view fingerprint) {
  bytes += kMagic;
  append_number(bytes, kVersion);
  for (const std::uint64_t length :
       {lengths.cubin, lengths.ptx, lengths.ptx_unpacked, lengths.metadata})
    append_number(bytes, length);
  append_hex(bytes, request_key);
  append_hex(bytes, fingerprint);
  const Digest digest = sha256(bytes);
  return bytes.append(reinterpret_cast<const char*>(digest.data()), digest.size());
}

// Everything but the parts themselves.
Result<Lengths> check_trailer(std::string_view bytes) {
  if (bytes.size() < kTrailerBytes)
    return corrupt("only " + std::to_string(bytes.size()) + " bytes");
  const std::string_view trailer = bytes.substr(bytes.size() - kTrailerBytes);
  if (trailer.substr(0, kMagic.size()) != kMagic) return corrupt("no ALK1 trailer");
  const std::string digest = to_hex(sha256(bytes.substr(0, bytes.size() - kDigestBytes)));
  if (digest != hex_at(trailer, kDigestOffset, kDigestBytes)) return corrupt("the SHA-256 differs");
  if (const std::uint32_t version = load_u32(trailer, 4); !reads_version(version, kVersion))
    return corrupt(refused_version(version, kVersion));
  const Lengths lengths = {load_u64(trailer, 8), load_u64(trailer, 16), load_u64(trailer, 24),
                           load_u64(trailer, 32)};
  std::uint64_t left = bytes.size() - kTrailerBytes;
  for (const std::uint64_t part : {lengths.cubin, lengths.ptx, lengths.metadata}) {
    if (part > left) return corrupt("the parts are longer than the file");
    left -= part;
  }
  if (left != 0) return corrupt("the parts are shorter than the file");
  if (lengths.cubin == 0) return corrupt("the cubin is empty");
  return lengths;
}

}  // namespace

bool is_key(std::string_view text) {
  return is_hex(text, 2 * kKeyBytes);
}
bool is_fingerprint(std::string_view text) {
  return is_hex(text, 2 * kFingerprintBytes);
}

std::string encode_entry(const std::string& request_key, const Source& source,
                         const Artifact& artifact) {
  const std::string ptx = pack(artifact.ptx);
  const std::string metadata = encode_metadata(source, artifact);
  const Lengths lengths = {artifact.cubin.size(), ptx.size(), ptx.empty() ? 0 : artifact.ptx.size(),
                           metadata.size()};
  return seal(artifact.cubin + ptx + metadata, lengths, request_key, artifact.fingerprint.hex);
}

Result<std::string> without_ptx(std::string_view bytes) {
  ATTNLOOM_TRY(Lengths lengths, check_trailer(bytes));
  if (lengths.ptx == 0) return std::string(bytes);
  const std::string_view trailer = bytes.substr(bytes.size() - kTrailerBytes);
  std::string body(bytes.substr(0, lengths.cubin));
  body += bytes.substr(lengths.cubin + lengths.ptx, lengths.metadata);
  lengths.ptx = lengths.ptx_unpacked = 0;
  return seal(std::move(body), lengths, hex_at(trailer, kKeyOffset, kKeyBytes),
              hex_at(trailer, kFingerprintOffset, kFingerprintBytes));
}

Result<std::string> entry_metadata(std::string_view bytes) {
  ATTNLOOM_TRY(const Lengths lengths, check_trailer(bytes));
  return std::string(bytes.substr(lengths.cubin + lengths.ptx, lengths.metadata));
}

Result<Entry> decode_entry(std::string_view bytes, Unpack unpack) {
  ATTNLOOM_TRY(const Lengths lengths, check_trailer(bytes));
  Entry entry;
  entry.has_ptx = lengths.ptx != 0;
  entry.artifact.cubin = bytes.substr(0, lengths.cubin);
  if (entry.has_ptx && unpack == Unpack::kAll) {
    ATTNLOOM_TRY(entry.artifact.ptx,
                 unpack_ptx(bytes.substr(lengths.cubin, lengths.ptx), lengths.ptx_unpacked));
  }
  ATTNLOOM_CHECK(decode_metadata(bytes.substr(lengths.cubin + lengths.ptx, lengths.metadata),
                                 entry.artifact, entry.fields));
  const std::size_t trailer = bytes.size() - kTrailerBytes;
  entry.request_key = hex_at(bytes, trailer + kKeyOffset, kKeyBytes);
  const std::string fingerprint = hex_at(bytes, trailer + kFingerprintOffset, kFingerprintBytes);
  if (fingerprint != entry.artifact.fingerprint.hex)
    return corrupt("trailer and metadata name different compilers");
  return entry;
}

}  // namespace attnloom
