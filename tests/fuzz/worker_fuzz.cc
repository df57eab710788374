// SPDX-License-Identifier: Apache-2.0
// The messages between a process and its confined compiler, which may have been taken over by the
// text that it compiles. First byte modulo 5: 0 an order, 1 a source, 2 a greeting, 3 an answer, 4
// frames.
#include <algorithm>
#include <string>

#include "compile/worker_messages.h"
#include "fuzz/fuzz.h"

using namespace attnloom;

namespace {

// What is believed is sent on unchanged: it is read as the same again.
template <class Message, class Decode>
void read_message(std::string_view bytes, Decode decode) {
  const Result<Message> message = decode(bytes);
  if (!message.ok()) {
    const Status& error = message.status();
    fuzz::require(error.code != Code::kOk, "an error stays an error");
    for (const std::string& text : {error.path, error.cause, error.remedy}) {
      fuzz::require(text.size() <= 4096, "an error is short");
      fuzz::require(
          std::all_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) >= ' ' && c != 0x7f; }),
          "an error is one line");
    }
    return;
  }
  const std::string once = encode(message.value());
  const Result<Message> again = decode(once);
  fuzz::require(again.ok() && encode(again.value()) == once, "what is read is written as the same");
}

void read_order(std::string_view bytes) {
  read_message<WorkerOrder>(bytes, decode_order);
}
void read_source(std::string_view bytes) {
  read_message<Source>(bytes, decode_source);
}
void read_greeting(std::string_view bytes) {
  read_message<Fingerprint>(bytes, decode_greeting);
}
void read_answer(std::string_view bytes) {
  read_message<CompiledText>(bytes, decode_answer);
}

void read_frames(std::string_view bytes) {
  for (;;) {
    const std::string_view before = bytes;
    const auto payload = take_frame(bytes);
    if (!payload) {
      fuzz::require(bytes == before, "a frame that is not whole stays");
      return;
    }
    fuzz::require(frame(*payload) == before.substr(0, before.size() - bytes.size()),
                  "a frame is its length and its payload");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr void (*kReaders[])(std::string_view) = {read_order, read_source, read_greeting,
                                                    read_answer, read_frames};
  const auto [how, rest] = fuzz::undress(data, size, 5);
  kReaders[how](rest);
  return 0;
}
