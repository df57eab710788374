// SPDX-License-Identifier: Apache-2.0
// Writes the seeds of the kept corpus: fuzz_make_corpus tests/fuzz/corpus. To be run again when a
// format changes; what fuzzing found is added to the folders by hand.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "cache/bundle_file.h"
#include "cache/tar_member.h"
#include "cache/zstd_frame.h"
#include "compile/worker_messages.h"
#include "fuzz/seed_entries.h"

using namespace attnloom;

namespace {

// The key of RFC 8032, section 7.1, test 1.
constexpr const char* kPrivate =
    "-----BEGIN PRIVATE KEY-----\n"
    "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n"
    "-----END PRIVATE KEY-----\n";

// 'A' to 'E' are 0 to 4 modulo 5.
template <class Write>
void write_worker_seeds(const Write& write) {
  const WorkerOrder order = {{"libnvrtc.so", "cuda", {"one", "two"}, "beside"}, 1 << 30, 60, true};
  const Source source = {"text", {{"a.cuh", "header"}, {"b.cuh", ""}}, {"-x"}, "sm_80", {"kernel"}};
  const Result<Fingerprint> greeting = Fingerprint{"0123456789abcdef", 13, 0, 13000};
  const Result<CompiledText> answer = CompiledText{"cubin", "ptx", "log"};
  const Status error = make_error(Code::kCompileFailed, "$.variant", "a cause", "a remedy");
  write("worker/order", 'A', encode(order));
  write("worker/source", 'B', encode(source));
  write("worker/greeting", 'C', encode(greeting));
  write("worker/greeting_error", 'C', encode(Result<Fingerprint>(error)));
  write("worker/answer", 'D', encode(answer));
  write("worker/answer_error", 'D', encode(Result<CompiledText>(error)));
  write("worker/frames", 'E', frame(encode(greeting)) + frame("") + frame("cut").substr(0, 9));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  const std::filesystem::path root = argv[1];
  const auto write = [&](const std::string& name, char how, const std::string& bytes) {
    std::filesystem::create_directories((root / name).parent_path());
    std::ofstream(root / name, std::ios::binary) << how << bytes;
  };
  for (const bool ptx : {false, true}) {
    const std::string name = ptx ? "with_ptx" : "without_ptx";
    write("entry/" + name, '0', fuzz::seed_entry("a", ptx));
    write("entry/" + name + "_resealed", '1', fuzz::seed_entry("a", ptx));
  }
  const std::string bundle = fuzz::seed_bundle();
  const std::string first = bundle.substr(0, frame_bytes(bundle));
  const std::string member =
      decompress_frame(first, frame_content_bytes(first).value_or(0)).value_or("");
  // '0', '1' and '2' are 48 to 50: 0, 1 and 2 modulo 3, and 0 and 1 modulo 2.
  write("bundle/file", '0', bundle);
  write("bundle/member", '2', member);
  const std::size_t header = tar_member_bytes(0);
  write("bundle/index", '1', member.substr(header, member.find('\0', header) - header));
  const SigningKey key = SigningKey::parse(kPrivate, "seed").value();
  write("trust/keys", '0', key.public_pem() + "revoked 1111111111111111\n");
  const Entry entry = decode_entry(fuzz::seed_entry("a", true), Unpack::kAll).value();
  write("trust/signature", '1', add_signature("", key.sign(facts_of(entry))));
  write("trust/private", '2', kPrivate);
  write_worker_seeds(write);
  return 0;
}
