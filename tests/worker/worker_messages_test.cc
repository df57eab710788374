// SPDX-License-Identifier: Apache-2.0
#include "compile/worker_messages.h"

#include <catch2/catch.hpp>

namespace attnloom {
namespace {

Source some_source() {
  return {"text\0with zero", {{"a.cuh", "one"}, {"b.cuh", ""}}, {"-x", "-y"}, "sm_80", {"k"}};
}

}  // namespace

TEST_CASE("messages come back as they were") {
  const auto source = decode_source(encode(some_source()));
  REQUIRE(source.ok());
  CHECK(*source == some_source());

  const WorkerOrder sent = {{"nvrtc", "home", {"a", "b"}, "beside"}, 7, 8, true};
  const auto order = decode_order(encode(sent));
  REQUIRE(order.ok());
  CHECK(order->search.path == "nvrtc");
  CHECK(order->search.cuda_home == "home");
  CHECK(order->search.python_paths == std::vector<std::string>{"a", "b"});
  CHECK(order->search.beside == "beside");
  CHECK(order->address_space_bytes == 7);
  CHECK(order->cpu_seconds == 8);
  CHECK(order->weak_sandbox);

  const Fingerprint fingerprint = {"0123456789abcdef", 13, 1, 13000};
  const auto greeting = decode_greeting(encode(Result<Fingerprint>(fingerprint)));
  REQUIRE(greeting.ok());
  CHECK(*greeting == fingerprint);

  const Status error = make_error(Code::kCompileFailed, "$.a", "cause", "remedy");
  const Status received = decode_answer(encode(Result<CompiledText>(error))).status();
  CHECK(received.to_string() == error.to_string());
}

TEST_CASE("every cut message is refused, and so are longer ones and wrong codes") {
  const std::string whole = encode(some_source());
  for (std::size_t length = 0; length < whole.size(); ++length)
    CHECK_FALSE(decode_source(whole.substr(0, length)).ok());
  CHECK_FALSE(decode_source(whole + "x").ok());
  const std::string huge(8, '\377');
  CHECK_FALSE(decode_source(huge).ok());
  CHECK_FALSE(decode_source(std::string(8, '\0') + huge).ok());
  CHECK(decode_answer(huge).status().code == Code::kInternal);
  const std::string unknown_code = std::string("\x7f\0\0\0\0\0\0\0", 8) + std::string(24, '\0');
  CHECK(decode_answer(unknown_code).status().code == Code::kInternal);
}

TEST_CASE("frames are taken when they are whole") {
  const std::string two = frame("first") + frame("");
  std::string_view left = two;
  CHECK(take_frame(left) == "first");
  CHECK(take_frame(left) == "");
  CHECK_FALSE(take_frame(left));
  for (std::size_t length = 0; length < 13; ++length) {
    std::string_view cut = std::string_view(two).substr(0, length);
    CHECK_FALSE(take_frame(cut));
  }
  const std::string huge(8, '\377');
  left = huge;
  CHECK_FALSE(take_frame(left));
}

}  // namespace attnloom
