// SPDX-License-Identifier: Apache-2.0
// The reader of specs.
#include "fuzz/fuzz.h"
#include "spec/check.h"
#include "spec/parse.h"

using namespace attnloom;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parsed = parse_spec(fuzz::text_of(data, size));
  if (!parsed.ok()) {
    fuzz::require(!parsed.status().cause.empty(), "a refusal has a cause");
    return 0;
  }
  if (parsed->spec.target) (void)check_spec(parsed->spec);
  const auto again = parse_spec(canonical_json(spec_to_json(parsed->spec)));
  fuzz::require(again.ok(), "a spec with its defaults filled in is a spec");
  fuzz::require(again->spec == parsed->spec, "and the same one");
  return 0;
}
