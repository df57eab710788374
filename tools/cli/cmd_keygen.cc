// SPDX-License-Identifier: Apache-2.0
// attnloom keygen: a pair of keys for signing cache entries. docs/SECURITY.md says how they are
// used.
#include <filesystem>
#include <iostream>

#include "cache/trust.h"
#include "tools/cli/output.h"
#include "tools/cli/session.h"

namespace attnloom::cli {
namespace {

constexpr mode_t kPrivateMode = 0600;
constexpr mode_t kPublicMode = 0644;

struct KeygenOptions {
  bool json = false;
  std::string output = "attnloom.key";
};

Result<int> run(const KeygenOptions& options) {
  if (options.output == "-")
    return make_error(Code::kArgumentInvalid, "--output", "wanted a file, given -",
                      "a private key is not printed; ./- is the file of that name");
  const std::string public_path = options.output + ".pub";
  const SigningKey key = SigningKey::generate();
  ATTNLOOM_CHECK(write_new_file(options.output, key.private_pem(), kPrivateMode));
  if (const Status written = write_new_file(public_path, key.public_pem(), kPublicMode);
      !written.ok()) {
    std::error_code ignored;
    std::filesystem::remove(options.output, ignored);  // made just now: half a pair is of no use
    return written;
  }
  if (options.json) {
    print_json({{"key_id", key.key_id()}, {"private", options.output}, {"public", public_path}});
  } else {
    std::cout << "key " << key.key_id() << ": " << options.output << " (keep it secret), "
              << public_path << " (list it in ATTNLOOM_TRUST_KEYS)\n";
  }
  return kAgrees;
}

}  // namespace

void add_keygen(CLI::App& program, Invocation& invocation) {
  const auto options = std::make_shared<KeygenOptions>();
  CLI::App& command = *program.add_subcommand("keygen", "make keys for signing cache entries");
  command.add_flag("--json", options->json, "print one JSON value on standard output");
  command
      .add_option("-o,--output", options->output,
                  "the private key; the public one goes to FILE.pub beside it")
      ->check(not_empty())
      ->capture_default_str();
  command.callback([options, &invocation] {
    options->json |= invocation.json;
    invocation.action = [options] { return run(*options); };
  });
}

}  // namespace attnloom::cli
