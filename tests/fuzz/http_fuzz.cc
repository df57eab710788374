// SPDX-License-Identifier: Apache-2.0
// The readers of what an HTTP cache or a compile service answers. First byte: 0 a mapping, 1 the
// error of a service, 2 header lines, 3 an address to go on to.
#include <optional>
#include <string>

#include "cache/entry.h"
#include "cache/http/action_result.h"
#include "cache/http/answer_head.h"
#include "cache/http/error_answer.h"
#include "cache/http/url.h"
#include "fuzz/fuzz.h"

using namespace attnloom;

namespace {

void read_mapping(std::string_view text) {
  const auto files = http::parse_action_result(text);
  if (!files.ok()) return;
  for (const http::OutputFile& file : *files)
    fuzz::require(is_key(file.sha256), "only a digest becomes part of an address");
  const auto again = http::parse_action_result(http::print_action_result(*files));
  fuzz::require(again.ok() && *again == *files, "what is printed is read as the same");
}

void read_error(std::string_view text) {
  const Status error = http::read_error_answer(text);
  fuzz::require(!error.ok() && !error.cause.empty(), "an error stays an error");
  for (const char letter : error.path + error.cause + error.remedy)
    fuzz::require(static_cast<unsigned char>(letter) >= ' ', "an error is one line");
}

void read_head(std::string_view text) {
  std::optional<std::uint64_t> length;
  std::string signature;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() + (line.size() < text.size() ? 1 : 0));
    http::read_head_line(line, length, signature);
  }
}

void read_address(std::string_view text) {
  http::Url from;
  from.tls = true;
  const auto url = http::parse_redirect(from, text);
  if (!url.ok()) return;
  fuzz::require(url->tls, "no way from https to http");
  const auto again = http::parse_redirect(from, url->text());
  fuzz::require(again.ok() && *again == *url, "an address is read as it is written");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr void (*kReaders[])(std::string_view) = {read_mapping, read_error, read_head,
                                                    read_address};
  const auto [how, rest] = fuzz::undress(data, size, 4);
  kReaders[how](rest);
  return 0;
}
